"""Reports that were written are read back, and damaged ones refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opcheck.common.errors import UsageError
from opcheck.model import saved
from opcheck.render import render
from tests.made import call, make_report

REPORT = make_report(call("aten::foo", 1), call("aten::foo", 7), call("aten::mm", 2), call("me::x"))
TEXT = render(REPORT, "json")


@pytest.mark.parametrize("name", ["json", "yaml"])
def test_what_is_read_back_is_what_was_written(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.txt"
    file.write_text(render(REPORT, name), encoding="utf-8")
    assert saved.read(str(file)) == msgspec.structs.replace(REPORT, graph=(), workloads=())
    assert REPORT.graph


def without(content: Any, *keys: str) -> Any:
    if isinstance(content, dict):
        return {name: without(value, *keys) for name, value in content.items() if name not in keys}
    return [without(value, *keys) for value in content] if isinstance(content, list) else content


def test_a_report_of_before_its_newest_keys_is_read(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps(without(json.loads(TEXT), "statement", "example")))
    report = saved.read(str(file))
    assert report.findings == REPORT.findings
    assert [group.verdict for group in report.groups] == [group.verdict for group in REPORT.groups]


def changed(**others: Any) -> str:
    return json.dumps({**json.loads(TEXT), **others})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(schema="opcheck-report/2"), "of a newer schema than this opcheck reads"),
        (changed(schema="opcheck-scan/1"), "its schema is 'opcheck-scan/1'"),
        (changed(schema=None), "it names no schema"),
        (changed(schema=["opcheck-report/1"]), "its schema is"),
        (changed(findings=[{"rule": "OC102"}]), "a damaged report: "),
        (changed(target={"macos": "15.0", "cpu_fallback": False}), "a damaged report: "),
        (changed(target={"torch": "2.13", "macos": True, "cpu_fallback": 1}), "a damaged report: "),
        (TEXT.replace('"fingerprints": [', '"fingerprints": ["1", '), "not one fingerprint a location"),
        (changed(totals={"calls": "many"}), "`$.totals[...]`"),
        ("[1, 2]", "it names no schema"),
        ("", "it names no schema"),
        ("a: [1", "neither JSON nor YAML"),
        ("[" * 100_000, "neither JSON nor YAML"),
        (TEXT[: len(TEXT) // 2], "neither JSON nor YAML"),
        ("a: 2026-99-99", "neither JSON nor YAML"),
    ],
)
def test_what_is_no_report_is_three_lines(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        saved.read(str(file))
    assert message in caught.value.message
    assert len(str(caught.value).splitlines()) == 3


def test_a_file_that_cannot_be_read_is_three_lines(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "b"):
        with pytest.raises(UsageError, match="cannot read the report"):
            saved.read(str(path))
