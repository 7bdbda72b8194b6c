from __future__ import annotations

import json

import yaml

from tests.command_line import CommandLine


def test_the_verdict_stands_in_the_first_line(opcheck: CommandLine) -> None:
    result = opcheck("op", "aten::embedding_renorm_", "--torch", "2.13", "--macos", "15")
    assert result.code == 0
    assert result.out.splitlines()[0] == "aten::embedding_renorm_: CPU fallback, always"
    assert "Nothing was observed on a Mac" in result.out
    assert result.err == ""


def test_the_table_goes_over_the_releases(opcheck: CommandLine) -> None:
    rows = [line.split() for line in opcheck("op", "aten::_fft_r2c").out.splitlines()]
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
    assert out.startswith("# isin: native\n")
    assert "| `aten::isin.Tensor_Tensor` | native | 2.4 |" in out


def test_unknown_exits_with_3(opcheck: CommandLine) -> None:
    result = opcheck("op", "mylib::foo")
    assert result.code == 3
    assert result.out.splitlines()[0] == "mylib::foo: unknown"


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
