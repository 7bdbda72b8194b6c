"""What the shipped lists answer: known facts about real operators, and the laws of an answer."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from opcheck.common.errors import UnknownTargetError, UsageError
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.features.op import page
from opcheck.lookup.answer import answer
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup, target
from opcheck.render import write
from opcheck.render.wording import label
from tests.made import make_lists

#: (query, torch, macOS, dtype) -> status and kind.
KNOWN = [
    ("aten::_fft_r2c", "1.13", "14", "float32", "fallback", "always"),
    ("aten::_fft_r2c", "2.0", "14", "float32", "fallback", "env"),
    ("aten::_fft_r2c", "2.2", "14", "float32", "fallback", "env"),
    ("aten::_fft_r2c", "2.3", "13", "float32", "unsupported", None),
    ("aten::_fft_r2c", "2.3", "14", "float32", "native", None),
    ("aten::_fft_r2c", "2.8", "13.3", "float32", "unsupported", None),
    ("aten::_fft_r2c", "2.8", "14", "float32", "native", None),
    ("aten::linalg_matrix_exp", "2.13", None, "float32", "fallback", "env"),
    ("aten::linalg_matrix_exp", "2.14", None, "float32", "native", None),
    ("aten::grid_sampler_2d_backward", "2.12", None, "float32", "fallback", "env"),
    ("aten::grid_sampler_2d_backward", "2.13", None, "float32", "native", None),
    ("aten::embedding_renorm_", "1.13", None, None, "fallback", "always"),
    ("aten::embedding_renorm_", "2.15", None, None, "fallback", "always"),
    ("aten::kaiser_window", "2.15", None, None, "unsupported", None),
    ("aten::_slow_conv2d_forward", "2.15", None, None, "unsupported", None),
    ("aten::nonzero", "2.5", "14", "float32", "native", None),
    ("aten::nonzero", "2.5", "14", "complex64", "fallback", "internal"),
    ("aten::nonzero", "2.13", "15", "complex64", "native", None),
    ("aten::isin.Tensor_Tensor_out", "2.3", None, "float32", "fallback", "env"),
    ("aten::isin.Tensor_Tensor_out", "2.4", None, "float32", "native", None),
    ("aten::conv3d", "2.2", None, "float32", "unsupported", None),
    ("aten::add.Tensor", "2.2", "13", "bfloat16", "unsupported", None),
    ("aten::add.Tensor", "2.2", "14", "bfloat16", "unsupported", None),
    ("aten::add.Tensor", "2.4", "13", "bfloat16", "unsupported", None),
    ("aten::add.Tensor", "2.4", "14", "bfloat16", "native", None),
    ("aten::add.Tensor", "2.15", None, "float64", "unsupported", None),
    ("aten::linear", "2.15", None, "int64", "unsupported", None),
    ("aten::linear", "2.15", None, "float32", "native", None),
    ("Tensor.masked_fill_", "2.15", None, "float32", "native", None),
    ("F.gelu", "2.15", None, "float32", "native", None),
]


@pytest.mark.parametrize(("query", "torch", "macos", "dtype", "status", "kind"), KNOWN)
def test_known_answers(
    query: str, torch: str, macos: str | None, dtype: str | None, status: str, kind: str | None, lists: OpLists
) -> None:
    result = answer(query, torch, macos, dtype, lists=lists)
    assert (result.status, result.kind) == (status, kind)
    assert result.overloads[0].evidence


def test_the_deciding_limitation_comes_first_and_says_so(lists: OpLists) -> None:
    result = answer("aten::_fft_r2c", "2.4", "13.1", "float32", lists=lists).overloads[0]
    assert result.limitations[0].decides
    assert "macOS 14" in result.limitations[0].summary
    assert result.prints == result.limitations[0].prints != ""
    native = answer("aten::_fft_r2c", "2.4", "14", "float32", lists=lists).overloads[0]
    assert not any(note.decides for note in native.limitations)


def test_the_table_of_releases_is_that_of_single_answers(lists: OpLists) -> None:
    result = answer("aten::nonzero", lists=lists)
    cells = result.overloads[0].releases
    assert {cell.torch for cell in cells} == {release.line for release in lists.releases}
    for cell in cells:
        for dtype in ("float32", "complex64"):
            first = answer("aten::nonzero", cell.torch, cell.macos, dtype, lists=lists)
            state = cell.dtypes[dtype]
            assert (first.status, first.kind) == (state.status, state.kind), (cell.torch, cell.macos)


def test_the_quick_state_is_the_judges(lists: OpLists) -> None:
    """One operator answers for those that are registered alike: none of them differs."""
    lookup = OperatorLookup(lists)
    for line, macos in (("1.13", "13.0"), ("2.3", "13.0"), ("2.15", "26.0")):
        aim = target(line, macos)
        for op in sorted(lists.operators(line))[::7]:
            for dtype in ("float32", "bfloat16", "float64", "bool"):
                state, verdict = lookup.state(op, aim, dtype), lookup.verdict(op, aim, dtype)
                assert (state.status, state.kind) == (verdict.status, verdict.kind), (op, dtype)


def _itself(op: str, target: Target, dtype: str) -> str:
    return dtype


def test_dtypes_taken_together_are_judged_alike(lists: OpLists) -> None:
    aim = target("2.5", "13.0")
    for op in ("aten::nonzero", "aten::linear", "aten::add.Tensor", "aten::sort.stable"):
        together = OperatorLookup(lists)
        alone = OperatorLookup(lists)
        alone.operators.alike = _itself  # type: ignore[method-assign]
        for dtype in COMMON_DTYPES:
            first, other = together.verdict(op, aim, dtype), alone.verdict(op, aim, dtype)
            assert (first.status, first.kind, first.because) == (other.status, other.kind, other.because)


@pytest.mark.parametrize(
    ("torch", "line", "words"),
    [
        ("2.4.1", "2.4", ""),
        ("2.4.0", "2.4", "the list of torch 2.4.1 answers for 2.4.0"),
        ("2.6.0.dev20241101", "2.6", "was built before 2.6.0"),
        ("2.13.0+cpu", "2.13", "the list of torch 2.13.0 answers for 2.13.0+cpu"),
    ],
)
def test_other_versions_are_answered_by_the_nearest_list(torch: str, line: str, words: str, lists: OpLists) -> None:
    result = answer("aten::nonzero", torch, lists=lists)
    assert result.target["torch"] == line
    assert (words in " ".join(result.notes)) if words else not result.notes


def test_since_goes_back_as_far_as_the_status_is_the_same(lists: OpLists) -> None:
    result = answer("aten::nonzero", lists=lists)
    assert (result.overloads[0].since, result.first_native) == ("2.0", "2.0")
    assert answer("aten::embedding_renorm_", lists=lists).first_native is None


def test_a_macos_alone_asks_about_the_releases_that_start_there(lists: OpLists) -> None:
    result = answer("aten::nonzero", macos="13.1", lists=lists)
    assert result.target["torch"] == "2.8"
    assert {cell.macos for cell in result.overloads[0].releases} == {"13.1"}
    assert result.overloads[0].releases[-1].torch == "2.8"


def test_tracking_issues_are_linked_where_something_is_missing(lists: OpLists) -> None:
    assert any("141287" in link for link in answer("aten::embedding_renorm_", lists=lists).links)
    native = answer("aten::relu", "2.15", "26", "float32", lists=lists)
    assert not any("141287" in link for link in native.links)


def test_what_nobody_knows_is_unknown(lists: OpLists) -> None:
    assert answer("mylib::foo", lists=lists).status == "unknown"
    # A composite of which no table says what it calls.
    assert answer("aten::implied", lists=make_lists()).status == "unknown"


def test_an_answer_is_plain_data(lists: OpLists) -> None:
    content = msgspec.to_builtins(answer("isin", "2.4.1", "14.2", "complex64", lists=lists))
    assert list(content) == [
        "schema", "tool", "op", "target", "dtypes", "status", "kind", "overload", "because", "route", "limit",
        "wrong", "modes", "overloads", "first_native", "notes", "links", "op_lists",
    ]  # fmt: skip
    assert content["schema"] == "opcheck-op/1"
    assert list(content["dtypes"]) == ["complex64"]
    assert set(content["overloads"][0]) >= {
        "name", "status", "kind", "because", "dtypes", "limitations", "advisories", "evidence",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("aten::nonzeros",), UsageError, "aten::nonzero"),
        (("aten::add.Tensors",), UsageError, "Tensor"),
        (("no such thing",), UsageError, "has an operator 'no such thing'"),
        (("isin", "two"), UsageError, "--torch"),
        (("isin", "2.4", "x"), UsageError, "--macos"),
        (("isin", "2.4", "14", "float33"), UsageError, "--dtype"),
        (("isin", "1.12"), UnknownTargetError, "nearest"),
        (("isin", "2.15", "14"), UnknownTargetError, "does not start"),
    ],
)
def test_errors_name_what_is_wrong_and_what_to_do(
    arguments: tuple[str, ...], error: type[Exception], words: str, lists: OpLists
) -> None:
    with pytest.raises(error) as caught:
        answer(*arguments, lists=lists)
    assert words in str(caught.value)
    assert "help:" in str(caught.value)


def test_a_version_newer_than_the_lists_is_judged_as_the_newest_and_noted(lists: OpLists) -> None:
    newer, newest = answer("isin", "9.9", "27", lists=lists), answer("isin", lists=lists)
    assert (newer.status, newer.target["torch"]) == (newest.status, newest.target["torch"])
    assert [note.rpartition("newer than")[2] for note in newer.notes] == [
        " the op lists",
        " the op lists: judged as 26",
    ]


def test_asking_imports_no_torch() -> None:
    code = (
        "import sys; from opcheck.cli import invoke; assert invoke(['op', 'aten::nonzero']) == 0; "
        "print('torch' in sys.modules, 'rich' in sys.modules, 'tabulate' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False False"


@pytest.mark.parametrize(
    ("query", "torch", "limit"),
    [
        ("svd", "2.15", "on the CPU above 32 KiB"),
        ("svd", "2.13", ""),  # it is not native, and the headline says that
        ("sdpa", "2.15", "raises with dropout"),
        ("nn.LSTM", "2.15", "raises with proj_size"),
        ("nn.LSTM", "1.13", "wrong in a case below"),
        # A size of 2**32 is no news to most programs, and a lone flag says nothing.
        ("bmm", "2.15", ""),
        ("nn.Softmax", "2.15", ""),
        ("topk", "2.7", "aborts over a dimension before the last four"),
        ("linear", "2.8", "aborts in a case below"),
        ("where", "2.2", "wrong in channels_last"),
        # It holds on older macOS alone.
        ("where", "2.7", ""),
    ],
)
def test_the_first_line_names_the_limit_that_matters(query: str, torch: str, limit: str, lists: OpLists) -> None:
    answered = answer(query, torch, lists=lists)
    assert answered.limit == limit
    first = " ".join(write(answered, page.document(answered), "text").partition("\n\n")[0].split())
    assert label(answered.status, answered.kind) in first
    assert limit.removesuffix(" in a case below") in first


def test_a_dtype_that_is_always_wrong_stands_in_the_first_line(lists: OpLists) -> None:
    assert answer("nextafter", "2.13", dtype="bfloat16", lists=lists).limit == "wrong for bfloat16"
    assert answer("nextafter", "2.13", dtype="float32", lists=lists).limit == ""
    assert answer("nextafter", "2.14", dtype="bfloat16", lists=lists).limit == ""


def test_a_module_answers_with_its_worst_call_and_lists_the_calls(lists: OpLists) -> None:
    answered = answer("nn.CTCLoss", "2.9", lists=lists)
    main, *calls = answered.overloads
    assert main.name == "nn.CTCLoss"
    assert (answered.status, answered.kind) == (calls[0].status, calls[0].kind)
    assert {call.name for call in calls} >= {"aten::_ctc_loss"}
    assert "it calls aten::_ctc_loss" in answered.because


def test_a_module_that_a_release_lacks_is_unknown_there(lists: OpLists) -> None:
    answered = answer("nn.RMSNorm", "2.3", lists=lists)
    assert answered.status == "unknown"
    assert "torch 2.3 has no nn.RMSNorm" in answered.because
