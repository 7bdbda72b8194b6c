from __future__ import annotations

import itertools
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS, OF_PROGRAM, STATUSES
from opcheck.data.registrations import OpLists, Resolution, load
from opcheck.data.statement_model import Statement, StatementEvidence
from opcheck.judge.judge import OUTCOMES, judge, judge_all, outcome
from opcheck.model.records import OpCall, Verdict
from tests.made import COMMIT, VALUES, call, make_lists, make_statement, make_target, spec

LISTS = make_lists(sparse={"aten::mm": "kernel"})
REFUSAL = ("device_mismatch", "two devices")

_OPS = st.sampled_from([*VALUES, "aten::nope", "mylib::op", "flex_attention"])
_CALLS = st.builds(
    OpCall,
    op=_OPS,
    inputs=st.lists(
        st.sampled_from([spec(1), spec(1, dtype="float64"), spec(1, layout="sparse_coo"), spec(1, layout="jagged")]),
        max_size=2,
    ).map(tuple),
    inner=st.one_of(st.none(), st.lists(_OPS, max_size=3, unique=True).map(tuple)),
    refusal=st.sampled_from([None, REFUSAL]),
    registrations=st.sampled_from([(), ("CPU",), ("CompositeImplicitAutograd",), ("MPS",)]),
)


def verdict(op: str, *, cpu_fallback: bool = False, **others: object) -> Verdict:
    return judge(call(op, 1, **others), make_target(cpu_fallback=cpu_fallback), LISTS)


@pytest.mark.parametrize(
    ("op", "status", "kind", "because"),
    [
        ("mm", "native", None, "an MPS kernel is registered in torch 2.13.0"),
        ("special_python", "native", None, "an MPS kernel, written in Python, is registered in torch 2.13.0"),
        (
            "embedding_renorm_",
            "fallback",
            "always",
            "torch 2.13.0 registers the CPU fallback for it, with or without the variable",
        ),
        ("foo", "fallback", "env", "torch 2.13.0 registers a CPU kernel and no MPS kernel"),
        ("svd", "fallback", "env", "it calls aten::svd.U: torch 2.13.0 registers a CPU kernel and no MPS kernel"),
        ("add", "native", None, "it calls aten::mm.out: an MPS kernel is registered in torch 2.13.0"),
        ("stub", "unsupported", None, "what torch 2.13.0 registers for MPS does nothing but raise"),
        (
            "digamma",
            "unsupported",
            None,
            "the MPS kernel registered in torch 2.13.0 calls digamma_stub, which MPS lacks",
        ),
        ("nothing", "unsupported", None, "neither an MPS kernel nor a CPU kernel is registered in torch 2.13.0"),
        ("nope", "unknown", None, "torch 2.13.0 has no operator aten::nope"),
    ],
)
def test_each_registration(op: str, status: str, kind: str | None, because: str) -> None:
    result = verdict(f"aten::{op}")
    assert (result.status, result.kind, result.because) == (status, kind, because)


def test_evidence_follows_the_chain() -> None:
    result = verdict("aten::svd")
    assert [entry.detail for entry in result.evidence] == ["aten::svd: out:aten::svd.U", "aten::svd.U: cpu_only"]
    assert {(e.kind, e.torch, e.where) for e in result.evidence} == {
        ("registration", "2.13.0", "torch/lib/libtorch_cpu.dylib")
    }


def test_the_mac_names_the_end_of_the_chain() -> None:
    assert verdict("aten::svd").named == "aten::svd.U"
    assert verdict("aten::foo").named == ""
    assert verdict("aten::svd").prints.startswith(
        "The operator 'aten::svd.U' is not currently implemented for the MPS device."
    )
    assert f"commit hash {COMMIT}." in verdict("aten::svd").prints


def test_the_variable_exchanges_the_error_for_the_warning() -> None:
    assert "is not currently implemented" in verdict("aten::foo").prints
    assert "will fall back to run on the CPU" in verdict("aten::foo", cpu_fallback=True).prints
    assert "will fall back to run on the CPU" in verdict("aten::embedding_renorm_").prints


def test_without_a_cpu_kernel_the_variable_only_changes_the_error() -> None:
    assert "is not currently implemented" in verdict("aten::nothing").prints
    assert verdict("aten::nothing", cpu_fallback=True).prints.startswith(
        "Could not run 'aten::nothing' with arguments from the 'CPU' backend."
    )


def test_a_refusal_wins_over_a_kernel() -> None:
    result = verdict("aten::mm", refusal=REFUSAL)
    assert (result.status, result.prints) == ("unsupported", REFUSAL[1])
    assert result.limitations == ("device_mismatch",)
    assert "two devices" in result.because


@pytest.mark.parametrize(
    ("dtype", "torch", "macos", "refused"),
    [
        ("float64", "1.13", "13.0", True),
        ("float64", "2.15", "26.0", True),
        ("complex128", "2.14", "15.0", False),
        ("complex128", "2.15", "15.0", True),
        ("bfloat16", "2.2", "14.0", True),
        ("bfloat16", "2.3", "13.0", True),
        ("bfloat16", "2.3", "14.0", False),
        ("bfloat16", "2.9", "14.0", False),
        ("float32", "1.13", "13.0", False),
    ],
)
def test_some_dtypes_cannot_be_on_mps(*, dtype: str, torch: str, macos: str, refused: bool, lists: OpLists) -> None:
    of_dtype = OpCall(op="aten::view", inputs=(spec(1, dtype=dtype),))
    for cpu_fallback in (False, True):
        target = make_target(torch, macos, cpu_fallback=cpu_fallback)
        result = judge(of_dtype, target, lists)
        assert (result.status == "unsupported") == refused
        named = [name for name in result.limitations if name.startswith(f"dtype-{dtype}")]
        assert bool(named) >= refused


@pytest.mark.parametrize(
    ("op", "dtype", "torch", "refused"),
    [
        ("aten::mul.Tensor", "complex128", "2.10", True),
        ("aten::view", "complex128", "2.10", False),
        ("aten::sin", "float8_e4m3fn", "2.13", True),
        ("aten::clone", "float8_e4m3fn", "2.13", False),
        ("aten::add.Tensor", "uint16", "2.7", True),
        ("aten::add.Tensor", "uint16", "2.9", False),
        ("aten::add.Tensor", "uint4", "2.13", True),
    ],
)
def test_kernels_that_compute_do_not_know_dtypes_that_can_be_stored(
    *, op: str, dtype: str, torch: str, refused: bool, lists: OpLists
) -> None:
    call = OpCall(op=op, inputs=(spec(1, dtype=dtype),), inner=())
    result = judge(call, make_target(torch, "15.0"), lists)
    assert (result.status == "unsupported") == refused


def test_a_statement_on_every_kernel_leaves_a_composite_to_what_it_calls(lists: OpLists) -> None:
    call = OpCall(op="aten::reshape", inputs=(spec(1, dtype="complex128"),), inner=("aten::view",))
    assert judge(call, make_target("2.10", "15.0"), lists).status == "native"


@pytest.mark.parametrize(
    ("dtypes", "arguments", "status"),
    [
        (("float32", "float32"), {}, "unsupported"),
        (("int32", "int32"), {}, "native"),
        (("float32", "int32"), {}, "native"),
        (("float32", "float32"), {"dtype": "int32"}, "native"),
    ],
)
def test_a_call_in_a_dtype_that_no_backend_computes_is_unsupported(
    dtypes: tuple[str, ...], arguments: dict[str, Any], status: str, lists: OpLists
) -> None:
    inputs = tuple(spec(number, dtype=dtype) for number, dtype in enumerate(dtypes))
    call = OpCall(op="aten::bitwise_and.Tensor", inputs=inputs, arguments=arguments)
    assert judge_all([call], make_target("2.13", "15.0"), lists)[0].status == status


def test_a_dtype_that_stays_on_the_cpu_is_no_matter() -> None:
    on_cpu = spec(2, dtype="float64", device="cpu")
    assert verdict("aten::mm", inputs=(spec(1), on_cpu)).status == "native"


@pytest.mark.parametrize(
    ("registrations", "says"),
    [
        (("CPU", "CompositeImplicitAutograd"), "could fall back with PYTORCH_ENABLE_MPS_FALLBACK"),
        (("CompositeImplicitAutograd",), "composite: what it calls decides"),
        (("MPS", "CPU"), "the Mac's build may not"),
        ((), "nothing is known about its kernels"),
    ],
)
def test_an_extension_is_unknown_whatever_it_registers_here(registrations: tuple[str, ...], says: str) -> None:
    result = verdict("mylib::op", registrations=registrations)
    assert result.status == "unknown"
    assert "namespace mylib" in result.because
    assert says in result.because


@pytest.mark.parametrize(
    ("registrations", "status"),
    [
        (("CPU", "Meta"), "fallback"),
        (("CompositeImplicitAutograd",), "unknown"),
        (("MPS", "CPU"), "unknown"),
        ((), "unknown"),
    ],
)
def test_torchs_own_namespaces_have_no_kernel_for_mps(registrations: tuple[str, ...], status: str) -> None:
    result = verdict("quantized::linear_dynamic", registrations=registrations)
    assert result.status == status
    assert ("'quantized::linear_dynamic' is not currently" in result.prints) is (status == "fallback")


@pytest.mark.parametrize(
    ("registrations", "status"),
    [
        (("CPU", "Meta", "Autograd", OF_PROGRAM), "fallback"),
        (("CPU", "Meta", "Autograd"), "unknown"),
        (("MPS", "CPU", OF_PROGRAM), "unknown"),
        (("CPU", "CompositeExplicitAutograd", OF_PROGRAM), "unknown"),
    ],
)
def test_an_operator_that_the_program_registers_for_the_cpu_alone_falls_back(
    registrations: tuple[str, ...], status: str
) -> None:
    result = verdict("mylib::op", registrations=registrations)
    assert result.status == status
    assert ("the program registers a CPU kernel and no MPS kernel" in result.because) is (status == "fallback")


@pytest.mark.parametrize(
    ("op", "layouts", "status"),
    [
        ("aten::mm", ("sparse_coo",), "native"),
        ("aten::mm", ("sparse_coo", "strided"), "native"),
        ("aten::relu", ("sparse_coo",), "unsupported"),
        ("aten::mm", ("sparse_csr",), "unsupported"),
        ("aten::mm", ("sparse_coo", "sparse_csr"), "unknown"),
        ("aten::mm", ("jagged",), "unknown"),
    ],
)
def test_sparse_inputs_are_judged_by_the_sparse_lists(op: str, layouts: tuple[str, ...], status: str) -> None:
    inputs = tuple(spec(number, layout=layout) for number, layout in enumerate(layouts))
    assert verdict(op, inputs=inputs).status == status


@pytest.mark.parametrize(
    ("inner", "status", "kind", "named"),
    [
        ((), "native", None, ""),
        (("aten::mm",), "native", None, ""),
        (("aten::mm", "aten::foo"), "fallback", "env", "aten::foo"),
        (("aten::svd", "aten::embedding_renorm_"), "fallback", "env", "aten::svd.U"),
        (("aten::foo", "aten::nope"), "unknown", None, "aten::nope"),
        (("aten::implied",), "unknown", None, "aten::implied"),
        (("aten::nope", "aten::stub"), "unsupported", None, "aten::stub"),
        (None, "unknown", None, ""),
    ],
)
@pytest.mark.parametrize("op", ["aten::comp", "aten::comp.out", "aten::implied"])
def test_a_composite_is_as_bad_as_the_worst_that_it_calls(
    op: str, inner: tuple[str, ...] | None, status: str, kind: str | None, named: str
) -> None:
    result = verdict(op, inner=inner)
    assert (result.status, result.kind, result.named) == (status, kind, named)
    assert result.confidence == "inferred"


@given(_CALLS, st.booleans())
def test_every_call_gets_a_verdict_with_evidence(made: OpCall, variable: bool) -> None:
    result = judge(made, make_target(cpu_fallback=variable), LISTS)
    assert result.status in STATUSES
    assert (result.status, result.kind) in OUTCOMES
    assert result.because
    assert result.evidence


@given(_CALLS)
def test_the_variable_changes_no_status(made: OpCall) -> None:
    without = judge(made, make_target(), LISTS)
    with_it = judge(made, make_target(cpu_fallback=True), LISTS)
    assert (without.status, without.kind) == (with_it.status, with_it.kind)
    if without.status == "native":
        assert without == with_it
    if made.refusal:
        assert with_it.status == "unsupported"


@given(_CALLS)
def test_forgetting_what_a_body_calls_never_makes_a_verdict_native(made: OpCall) -> None:
    forgotten = msgspec.structs.replace(made, inner=None)
    if judge(made, make_target(), LISTS).status == "unknown":
        assert judge(forgotten, make_target(), LISTS).status != "native"


@given(_CALLS)
def test_an_unknown_part_never_leaves_a_composite_native(made: OpCall) -> None:
    op = "aten::comp"
    with_unknown = msgspec.structs.replace(
        made, op=op, inner=(*(made.inner or ()), "mylib::op"), refusal=None, inputs=()
    )
    assert judge(with_unknown, make_target(), LISTS).status in {"unknown", "unsupported"}


@given(st.lists(_CALLS, max_size=6), st.randoms())
def test_the_order_of_the_calls_changes_no_verdict(made: list[OpCall], random: object) -> None:
    alone = [judge(item, make_target(), LISTS) for item in made]
    assert list(judge_all(made, make_target(), LISTS)) == alone
    assert list(judge_all(made[::-1], make_target(), LISTS)) == alone[::-1]


def test_the_order_of_a_body_changes_no_verdict() -> None:
    inner = ("aten::foo", "aten::svd", "aten::mm", "aten::embedding_renorm_")
    results = {verdict("aten::comp", inner=order) for order in itertools.permutations(inner)}
    assert len(results) == 1


def test_the_severities_are_in_one_order() -> None:
    severities = [row.severity for row in OUTCOMES.values()]
    assert severities == sorted(set(severities))
    assert next(iter(OUTCOMES)) == ("native", None)
    assert outcome(verdict("aten::mm")).side == "mps"


def test_every_overload_of_every_release_gets_a_verdict(lists: OpLists) -> None:
    of_status: set[str] = set()
    for release in lists.releases:
        target = make_target(release.line)
        for op in lists.operators(release.line):
            result = judge(OpCall(op=op, inner=("mylib::op",)), target, lists)
            of_status.add(result.status)
            assert result.evidence
            composite = lists.resolve(op, release.line).status == "composite"
            # A composite that refuses every tensor is unsupported, whatever its body calls.
            assert (result.status in {"unknown", "unsupported"}) >= composite, op
            assert result.status != "unknown" or composite, op
    assert of_status == set(STATUSES)


@pytest.mark.parametrize(
    ("op", "torch", "status", "kind", "named"),
    [
        ("aten::linalg_svd", "2.13", "fallback", "always", ""),
        ("aten::_linalg_svd", "2.13", "fallback", "env", "aten::_linalg_svd.U"),
        ("aten::_linalg_svd", "2.14", "native", None, ""),
        ("aten::embedding_renorm_", "2.15", "fallback", "always", ""),
        ("aten::_slow_conv2d_forward", "2.15", "unsupported", None, ""),
        ("aten::col2im", "2.7", "fallback", "always", ""),
        ("aten::col2im", "2.8", "native", None, ""),
        ("aten::gcd", "2.9", "fallback", "env", "aten::gcd.out"),
    ],
)
def test_what_is_known_of_real_releases(
    *, op: str, torch: str, status: str, kind: str | None, named: str, lists: OpLists
) -> None:
    result = judge(OpCall(op=op), make_target(torch), lists)
    assert (result.status, result.kind) == (status, kind)
    if status != "native":
        assert result.named == named


def test_equal_calls_are_judged_once(lists: OpLists, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []
    resolve = OpLists.resolve

    def counted(self: OpLists, op: str, line: str) -> Resolution:
        resolved.append(op)
        return resolve(self, op, line)

    monkeypatch.setattr(OpLists, "resolve", counted)
    calls = [call(op) for op in ("aten::mm", "aten::relu") for _ in range(1000)]
    judge_all(calls, make_target(), lists)
    assert resolved == ["aten::mm", "aten::relu"]


def test_the_release_decides() -> None:
    grown = make_lists({"aten::new": {"2.13": "cpu_only", "2.14": "kernel"}})
    statuses = [judge(call("aten::new"), make_target(line), grown).status for line in ("2.12", "2.13", "2.14")]
    assert statuses == ["unknown", "fallback", "native"]


# The curated statements.

_SHAPES = [(2, 3), (2, 3, 4)]
_DTYPES = ["float32", "float16", "int64"]
_STATEMENTS = st.lists(
    st.builds(
        make_statement,
        st.sampled_from([f"made-{letter}" for letter in "abcdefgh"]),
        ops=st.sampled_from([("aten::mm",), ("aten::comp",), ("aten::*",), ("*",), ("aten::foo",)]),
        effect=st.sampled_from(EFFECTS),
        sort=st.sampled_from(["limitation", "advisory"]),
        dtypes=st.sampled_from([(), ("float16",), ("float32", "int64")]),
        condition=st.sampled_from(["", "self.dim == 3", "missing == 1", "k > 0"]),
        when=st.sampled_from(["", "values repeat"]),
        torch=st.sampled_from([Span(), Span(since=Version(2, 14)), Span(until=Version(2, 14))]),
    ),
    max_size=4,
    unique_by=lambda statement: statement.id,
)
_SHAPED = st.builds(
    lambda op, dtype, shape, k, inner: OpCall(
        op=op,
        inputs=(spec(1, dtype=dtype, shape=shape, argument="self"),),
        outputs=(spec(2, dtype=dtype, shape=shape),),
        arguments={} if k is None else {"k": k},
        inner=inner,
    ),
    # Few operators, so that statements meet them and calls share them.
    st.sampled_from(["aten::mm", "aten::comp", "aten::foo"]),
    st.sampled_from(_DTYPES),
    st.sampled_from(_SHAPES),
    st.sampled_from([None, 0, 1]),
    st.one_of(st.none(), st.lists(_OPS, max_size=2, unique=True).map(tuple)),
)


@given(_STATEMENTS, _SHAPED, st.booleans())
def test_a_statement_never_strengthens_a_verdict(statements: list[Statement], made: OpCall, variable: bool) -> None:
    target = make_target(cpu_fallback=variable)
    without = judge(made, target, make_lists())
    with_them = judge(made, target, make_lists(statements=tuple(statements)))
    assert outcome(with_them).severity >= outcome(without).severity
    assert {*without.limitations} <= {*with_them.limitations}
    assert with_them.evidence


@given(_STATEMENTS, _SHAPED, st.randoms())
def test_the_order_of_the_statements_changes_no_verdict(
    statements: list[Statement], made: OpCall, random: Random
) -> None:
    shuffled = statements.copy()
    random.shuffle(shuffled)
    verdicts = {
        judge(made, make_target(), make_lists(statements=tuple(order)))
        for order in (statements, shuffled, statements[::-1])
    }
    assert len(verdicts) == 1


@given(_STATEMENTS, _SHAPED)
def test_a_statement_on_one_dtype_changes_no_other(statements: list[Statement], made: OpCall) -> None:
    others = tuple(
        statement for statement in statements if not statement.dtypes or made.inputs[0].dtype in statement.dtypes
    )
    # A composite's body is known by name only: there a dtype that is not the call's says nothing.
    assume(made.inner is None or not made.inner)
    results = [judge(made, make_target(), make_lists(statements=kept)) for kept in (tuple(statements), others)]
    assert results[0] == results[1]


@given(_STATEMENTS, st.lists(_SHAPED, max_size=6))
def test_judging_equal_calls_once_changes_no_verdict(statements: list[Statement], made: list[OpCall]) -> None:
    lists = make_lists(statements=tuple(statements))
    alone = tuple(judge(item, make_target(), lists) for item in made)
    assert judge_all(made, make_target(), lists) == alone


@given(_STATEMENTS, _SHAPED)
def test_the_variable_never_rescues_what_a_kernel_refuses(statements: list[Statement], made: OpCall) -> None:
    lists = make_lists(statements=tuple(statements))
    without, with_it = (judge(made, make_target(cpu_fallback=variable), lists) for variable in (False, True))
    assert (without.status, without.kind) == (with_it.status, with_it.kind)


SHAPED = OpCall(op="aten::mm", inputs=(spec(1, argument="self"),), outputs=(spec(2),), arguments={"k": 2})


@pytest.mark.parametrize(
    ("fields", "status", "kind", "limitations"),
    [
        ({}, "unsupported", None, ("made",)),
        ({"effect": "aborts"}, "unsupported", None, ("made",)),
        ({"effect": "falls_back"}, "fallback", "internal", ("made",)),
        ({"effect": "narrows"}, "native", None, ("made",)),
        ({"effect": "warns"}, "native", None, ("made",)),
        ({"effect": "wrong_result"}, "native", None, ("made",)),
        ({"condition": "k == 2"}, "unsupported", None, ("made",)),
        ({"condition": "k == 3"}, "native", None, ()),
        ({"condition": "missing == 3"}, "native", None, ("made",)),
        ({"when": "values repeat"}, "native", None, ("made",)),
        ({"when": "values repeat", "condition": "k == 2"}, "native", None, ("made",)),
        ({"dtypes": ("float32",)}, "unsupported", None, ("made",)),
        ({"dtypes": ("float16",)}, "native", None, ()),
        ({"torch": Span(until=Version(2, 13))}, "native", None, ()),
        ({"macos": Span(until=Version(15))}, "native", None, ()),
        ({"macos": Span(until=Version(15, 1))}, "unsupported", None, ("made",)),
        ({"ops": ("aten::mm.out",)}, "native", None, ()),
        ({"ops": ("aten::m*",)}, "unsupported", None, ("made",)),
    ],
)
@pytest.mark.parametrize("cpu_fallback", [False, True])
def test_what_a_statement_does_to_a_native_call(
    *, fields: dict[str, object], status: str, kind: str | None, limitations: tuple[str, ...], cpu_fallback: bool
) -> None:
    lists = make_lists(statements=(make_statement("made", **fields),))
    result = judge(SHAPED, make_target(cpu_fallback=cpu_fallback), lists)
    assert (result.status, result.kind, result.limitations) == (status, kind, limitations)


def test_a_decided_verdict_cites_its_statement() -> None:
    result = judge(SHAPED, make_target(), make_lists(statements=(make_statement("made"),)))
    assert result.because == "The kernel refuses made (torch 2.13.0, macOS 15.0)"
    assert result.prints == "made is refused"
    assert result.confidence == "source check"
    assert [(item.kind, item.where, item.detail) for item in result.evidence] == [
        ("registration", "torch/lib/libtorch_cpu.dylib", "aten::mm: kernel"),
        ("limitation", "", "made"),
        ("source", "Made.mm:7", ""),
    ]
    listed = make_statement("made", evidence=(StatementEvidence(kind="opinfo", where="common_mps.py"),))
    of_list = judge(SHAPED, make_target(), make_lists(statements=(listed,)))
    assert of_list.confidence == "test list"


@pytest.mark.parametrize(
    ("inner", "status"), [(("aten::foo",), "fallback"), (("aten::nope",), "unknown"), (("aten::stub",), "unsupported")]
)
def test_a_kernel_that_leaves_for_the_cpu_makes_nothing_better(inner: tuple[str, ...], status: str) -> None:
    leaves = make_statement("made", ops=("aten::comp",), effect="falls_back")
    result = judge(call("aten::comp", inner=inner), make_target(), make_lists(statements=(leaves,)))
    assert (result.status, result.limitations) == (status, ("made",))
    assert result.kind in {"env", None}


def test_the_worst_of_several_decides() -> None:
    several = (
        make_statement("a-warns", effect="warns"),
        make_statement("b-leaves", effect="falls_back"),
        make_statement("c-raises"),
        make_statement("d-raises"),
        make_statement("e-wrong", effect="wrong_result", sort="advisory"),
    )
    result = judge(SHAPED, make_target(), make_lists(statements=several))
    assert (result.status, result.prints) == ("unsupported", "c-raises is refused")
    assert result.limitations == ("a-warns", "b-leaves", "c-raises", "d-raises")
    assert result.advisories == ("e-wrong",)


def test_a_narrowing_prints_its_warning() -> None:
    narrows = make_statement("made", effect="narrows")
    result = judge(SHAPED, make_target(), make_lists(statements=(narrows,)))
    assert (result.status, result.prints) == ("native", "made is refused")


@pytest.mark.parametrize("op", ["aten::foo", "aten::embedding_renorm_", "aten::stub", "aten::nope"])
def test_a_limitation_is_met_only_where_a_kernel_runs(op: str) -> None:
    lists = make_lists(statements=(make_statement("made", ops=(op,)),))
    made = call(op)
    assert judge(made, make_target(), lists) == judge(made, make_target(), make_lists())


def test_a_tensor_that_cannot_be_made_stops_a_fallback_too() -> None:
    made = call("aten::foo", inputs=(spec(1, dtype="float64"),))
    assert judge(made, make_target(cpu_fallback=True), make_lists()).status == "unsupported"


def test_a_composite_meets_the_limitations_of_what_it_calls() -> None:
    always = make_statement("always")
    half = make_statement("half", dtypes=("float16",))
    shape = make_statement("shape", condition="self.dim == 9")
    lists = make_lists(statements=(always, half, shape))
    made = call("aten::comp", inner=("aten::mm", "aten::relu"))
    result = judge(made, make_target(), lists)
    assert (result.status, result.named) == ("unsupported", "aten::mm")
    assert result.limitations == ("always", "shape")
    perhaps = judge(made, make_target(), make_lists(statements=(half, shape)))
    assert (perhaps.status, perhaps.limitations) == ("native", ("shape",))


def test_a_composite_that_answers_for_its_body_is_asked_once() -> None:
    inner = make_statement("inner", condition="self.dim == 9")
    outer = make_statement("outer", ops=("aten::comp",), condition="self.dim == 3", error=inner.error)
    lists = make_lists(statements=(inner, outer))
    flat, deep = (call("aten::comp", inputs=(spec(1, shape=s, argument="self"),), inner=("aten::mm",)) for s in _SHAPES)
    assert judge(flat, make_target(), lists).limitations == ()
    result = judge(deep, make_target(), lists)
    assert (result.status, result.limitations) == ("unsupported", ("outer",))
    untold = judge(call("aten::comp", inner=("aten::mm",)), make_target(), lists)
    assert untold.limitations == ("inner", "outer")


def test_shapes_are_told_apart_only_where_a_condition_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = make_lists(statements=(make_statement("made", condition="self.dim == 3"),))
    resolved: list[str] = []
    resolve = OpLists.resolve

    def counted(self: OpLists, op: str, line: str) -> Resolution:
        resolved.append(op)
        return resolve(self, op, line)

    monkeypatch.setattr(OpLists, "resolve", counted)
    calls = [
        call(op, inputs=(spec(n, shape=shape, argument="self"),))
        for op in ("aten::mm", "aten::relu")
        for shape in _SHAPES
        for n in range(5)
    ]
    result = judge_all(calls, make_target(), lists)
    assert resolved == ["aten::mm", "aten::mm", "aten::relu"]
    assert [item.status for item in result[:10]] == ["native"] * 5 + ["unsupported"] * 5


@pytest.mark.parametrize(
    ("dtype", "torch", "macos", "status"),
    [
        ("bfloat16", "2.0", "14.0", "unsupported"),
        ("bfloat16", "2.2", "14.0", "unsupported"),
        ("bfloat16", "2.4", "13.0", "unsupported"),
        ("bfloat16", "2.4", "14.0", "native"),
        ("complex64", "2.0", "14.0", "unsupported"),
        ("complex64", "2.4", "13.0", "unsupported"),
        ("complex64", "2.4", "14.0", "native"),
        ("complex128", "2.15", "15.0", "unsupported"),
        ("uint16", "2.7", "15.0", "unsupported"),
        ("uint16", "2.9", "15.0", "unsupported"),
        ("float32", "1.13", "13.0", "native"),
    ],
)
def test_adding_two_tensors_of_a_dtype(dtype: str, torch: str, macos: str, status: str, lists: OpLists) -> None:
    inputs = tuple(spec(n, dtype=dtype, argument=name) for n, name in enumerate(("self", "other")))
    made = OpCall(op="aten::add.Tensor", inputs=inputs, outputs=(spec(3, dtype=dtype),), arguments={})
    result = judge(made, make_target(torch, macos), lists)
    assert result.status == status, result


def test_a_composite_passes_no_number_of_the_cpu_on_to_the_calls_of_its_body() -> None:
    lists = load()
    target = make_target("2.13", "15.0")
    own = judge(OpCall(op="aten::add_.Tensor"), target, lists)
    assert "number-on-the-cpu-view" in own.advisories
    convolution = judge(OpCall(op="aten::convolution"), target, lists)
    assert "number-on-the-cpu-view" not in convolution.advisories
