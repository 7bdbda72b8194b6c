from __future__ import annotations

import csv
import functools
import io
import json

import pytest
from jsonschema import Draft202012Validator

from opcheck.data.registrations import OpLists
from opcheck.lookup.matrix import Matrix, matrix
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.model.saved import json_schema
from tests.command_line import CommandLine

#: Every format writes the same rows: they are judged once.
_judged = functools.cache(matrix)


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(torch: str | None, macos: str | None, *, lookup: OperatorLookup) -> Matrix:
        assert lookup is not None
        return _judged(torch, macos)

    monkeypatch.setattr("opcheck.features.matrix.page.matrix", judged)


@pytest.mark.slow
def test_csv_and_json_have_a_row_for_every_overload(opcheck: CommandLine, lists: OpLists) -> None:
    content = json.loads(opcheck("matrix", "--torch", "2.13", "-f", "json").out)
    assert (content["schema"], content["torch"]) == ("opcheck-matrix/1", "2.13")
    assert list(Draft202012Validator(json_schema(Matrix)).iter_errors(content)) == []
    names = [row["name"] for row in content["rows"]]
    assert names == sorted(lists.operators("2.13"))
    assert {"name", "status", "kind", "because", "since", "dtypes", "limitations", "links"} <= set(content["rows"][0])
    rows = list(csv.DictReader(io.StringIO(opcheck("matrix", "--torch", "2.13", "-f", "csv").out)))
    assert [row["name"] for row in rows] == names
    by_name = {row["name"]: row for row in rows}
    assert by_name["aten::embedding_renorm_"]["kind"] == "always"
    assert by_name["aten::nonzero"]["float64"] == "unsupported"


@pytest.mark.slow
def test_markdown_leads_with_what_is_missing(opcheck: CommandLine) -> None:
    out = opcheck("matrix", "--torch", "2.13", "-f", "markdown").out
    assert out.startswith("# MPS coverage of torch 2.13.0 on macOS 26.0\n")
    assert out.index("## unsupported") < out.index("## CPU fallback") < out.index("## native")


def test_without_a_file_it_prints_the_counts_and_the_commands_that_write_the_rows(opcheck: CommandLine) -> None:
    lines = opcheck("matrix", "--torch", "2.13").out.splitlines()
    assert len(lines) <= 15
    assert lines[0] == "MPS coverage of torch 2.13.0 on macOS 26.0"
    assert "opcheck matrix --torch 2.13 --macos 26.0 -o coverage.md" in "\n".join(lines)


def test_a_dtype_whose_results_are_wrong_is_marked_in_its_cell(opcheck: CommandLine) -> None:
    content = json.loads(opcheck("matrix", "--torch", "2.13", "-f", "json").out)
    cells = {row["name"]: row["dtypes"] for row in content["rows"]}
    assert (cells["aten::acos"]["complex64"], cells["aten::acos"]["float32"]) == ("native_wrong", "native")
    markdown = opcheck("matrix", "--torch", "2.13", "-f", "markdown").out
    assert "native\\_wrong: complex64" in markdown.partition("## Native, wrong for some inputs")[2]


def test_errors(opcheck: CommandLine) -> None:
    assert opcheck("matrix", "--torch", "1.2").code == 2
    assert opcheck("matrix", "--torch", "2.15", "--macos", "13").code == 2
    assert opcheck("matrix", "-f", "pdf").code == 2
