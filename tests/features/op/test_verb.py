from __future__ import annotations

import json

import yaml

from tests.command_line import CommandLine


def test_the_verdict_stands_in_the_first_line(opcheck: CommandLine) -> None:
    result = opcheck("op", "aten::embedding_renorm_", "--torch", "2.13", "--macos", "15")
    assert result.code == 0
    assert result.out.splitlines()[0] == ("aten::embedding_renorm_: CPU fallback, always on torch 2.13, macOS 15.0")
    assert "Nothing was observed on a Mac" in result.out
    assert result.err == ""


def test_the_table_goes_over_the_releases(opcheck: CommandLine) -> None:
    rows = [line.split() for line in opcheck("op", "aten::_fft_r2c", "--releases").out.splitlines()]
    assert ["1.13", "any", "CPU", "fallback,", "always"] in [row[:5] for row in rows]
    assert ["14.0+", "native"] in [row[:2] for row in rows]


def test_json_has_the_documented_form(opcheck: CommandLine) -> None:
    result = opcheck(
        "op", "aten::nonzero", "--torch", "2.5.1", "--macos", "14.2", "--dtype", "complex64",
        "-f", "json",
    )  # fmt: skip
    content = json.loads(result.out)
    assert content["schema"] == "opcheck-op/1"
    assert (content["status"], content["kind"]) == ("fallback", "internal")
    assert content["dtypes"] == {"complex64": {"status": "fallback", "kind": "internal"}}
    assert content["target"] == {
        "torch": "2.5", "release": "2.5.1", "asked": "2.5.1", "macos": "14.2", "dtype": "complex64",
    }  # fmt: skip
    assert content["overloads"][0]["limitations"][0]["decides"] is True


def test_yaml_and_json_say_the_same(opcheck: CommandLine) -> None:
    arguments = ("op", "isin", "--torch", "2.6")
    as_json = json.loads(opcheck(*arguments, "-f", "json").out)
    assert yaml.safe_load(opcheck(*arguments, "-f", "yaml").out) == as_json


def test_markdown_has_a_pipe_table(opcheck: CommandLine) -> None:
    out = opcheck("op", "isin", "-f", "markdown").out
    assert out.startswith("# isin: native on torch 2.15, macOS 26.0 (since 2.4)\n")
    assert "| `aten::isin.Tensor_Tensor` | native | 2.4 |" in out


def test_unknown_exits_with_3(opcheck: CommandLine) -> None:
    result = opcheck("op", "mylib::foo")
    assert result.code == 3
    assert result.out.splitlines()[0] == "mylib::foo: unknown on torch 2.15, macOS 26.0"


def test_errors_have_three_lines_and_their_codes(opcheck: CommandLine) -> None:
    for arguments, code in (
        (("aten::isinn",), 2),
        (("isin", "--dtype", "float33"), 2),
        (("isin", "--torch", "two"), 2),
        (("isin", "--torch", "1.2"), 2),
        (("isin", "--macos", "16"), 2),
    ):
        result = opcheck("op", *arguments)
        assert result.code == code, arguments
        assert result.out == ""
        assert len(result.err.splitlines()) == 3


def test_the_answer_can_go_to_a_file(opcheck: CommandLine) -> None:
    result = opcheck("op", "isin", "-o", "isin.json")
    assert (result.out, result.err) == ("", "written to isin.json\n")
    with open("isin.json", encoding="utf-8") as file:  # noqa: PTH123  (relative to the test's own directory)
        assert json.load(file)["schema"] == "opcheck-op/1"


def test_the_same_question_gives_the_same_bytes(opcheck: CommandLine) -> None:
    assert opcheck("op", "aten::add").out == opcheck("op", "aten::add").out


#: The names that the zoo's models call most, and those that people look up.
MOST_USED = (
    *("nn.MultiheadAttention", "nn.Linear", "nn.Conv2d", "nn.ConvTranspose2d", "nn.LSTM", "nn.GRU"),
    *("nn.LayerNorm", "nn.BatchNorm2d", "nn.GroupNorm", "nn.Embedding", "nn.Transformer"),
    *("nn.CrossEntropyLoss", "nn.CTCLoss", "F.interpolate", "F.grid_sample", "F.pad", "sdpa"),
    *("F.softmax", "torch.matmul", "torch.bmm", "torch.einsum", "torch.cat", "torch.add", "mul"),
    *("torch.acos", "svd", "linalg.eigh", "linalg.inv", "fft.rfft", "stft", "nonzero", "sort"),
    *("topk", "cumsum", "gather", "scatter_add", "index_put", "where", "multinomial", "optim.Adam"),
)


def test_the_answers_on_the_40_most_used_names_have_at_most_15_lines(opcheck: CommandLine) -> None:
    assert len(MOST_USED) == 40
    for name in MOST_USED:
        for arguments in (("op", name), ("history", name)):
            lines = opcheck(*arguments).out.splitlines()
            assert len(lines) <= 15, arguments
            assert all(len(line) <= 100 for line in lines), arguments


def test_a_wrong_result_is_in_the_headline_and_in_the_json(opcheck: CommandLine) -> None:
    arguments = ("op", "torch.acos", "--dtype", "complex64")
    content = json.loads(opcheck(*arguments, "--json").out)
    (wrong,) = content["wrong"]
    assert (wrong["id"], wrong["frequency"]) == ("acos-complex-one", "sometimes")
    assert wrong["case"]
    assert wrong["when"]
    assert content["dtypes"]["complex64"] == {"status": "native", "kind": None, "wrong": "sometimes"}
    assert "WRONG for every real number of size 1 or more" in " ".join(opcheck(*arguments).out.split())
    assert json.loads(opcheck("op", "torch.acos", "--dtype", "float16", "--json").out)["wrong"] == []


def test_rare_cases_are_counted_and_not_shouted(opcheck: CommandLine) -> None:
    out = " ".join(opcheck("op", "nn.Linear").out.split())
    assert "WRONG" not in out
    assert "wrong in 2 rare cases" in out
    assert "on an M5, for some odd sizes" in out


def test_a_name_that_fixes_a_dtype_is_judged_with_it(opcheck: CommandLine) -> None:
    for name, status in (("double", "unsupported"), ("x.half()", "native"), ("cdouble", "unsupported")):
        assert json.loads(opcheck("op", name, "--json").out)["status"] == status, name


def test_a_function_is_answered_by_mode(opcheck: CommandLine) -> None:
    every = json.loads(opcheck("op", "F.interpolate", "--torch", "2.4", "--json").out)
    assert (every["status"], every["modes"]["bicubic"]["status"]) == ("native", "fallback")
    headline = opcheck("op", "F.interpolate", "--torch", "2.4").out.partition("\n\n")[0]
    assert "bicubic, trilinear" in " ".join(headline.split())
    for query in ("F.interpolate bicubic", "F.interpolate(x, size=2, mode='bicubic')"):
        one = json.loads(opcheck("op", query, "--torch", "2.4", "--json").out)
        assert (one["overload"], one["status"]) == ("aten::upsample_bicubic2d", "fallback"), query


def test_a_limit_that_cannot_hold_for_the_question_is_left_out(opcheck: CommandLine) -> None:
    def limits(*arguments: str) -> set[str]:
        (main, *_) = json.loads(opcheck("op", *arguments, "--json").out)["overloads"]
        return {note["id"] for note in main["limitations"]}

    # Its condition asks for weights that do not have the five dimensions of conv3d.
    assert "conv-output-size-2-14" in limits("F.conv2d", "--torch", "2.14", "--macos", "15.0")
    assert "conv-output-size-2-14" not in limits("F.conv3d", "--torch", "2.14", "--macos", "15.0")
    assert "conv-integers" not in limits("F.conv2d", "--dtype", "float32")


def test_each_section_is_behind_its_flag(opcheck: CommandLine) -> None:
    titles = {
        "--releases": "status (usual dtype)",
        "--calls": "Overloads on torch",
        "--limits": "Advisories",
        "--evidence": "Evidence",
    }
    short, full = opcheck("op", "torch.acos").out, opcheck("op", "torch.acos", "-v").out
    for flag, title in titles.items():
        assert title in opcheck("op", "torch.acos", flag).out
        assert title in full
        assert title not in short
