"""The published schema says what the reports hold, key by key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from opcheck.model.saved import as_content, json_schema
from opcheck.render import render
from tests.render.test_formats import REPORTS

GOLDEN = Path(__file__).parent / "golden"
VALIDATOR = Draft202012Validator(json_schema())


def problems(content: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(content)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: str(path.name))
def test_the_golden_reports_are_valid(path: Path) -> None:
    if ".gitlab" not in path.name:
        assert problems(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("name", REPORTS)
def test_the_reports_are_valid(name: str) -> None:
    assert problems(as_content(REPORTS[name])) == []


def objects(kind: Any) -> Iterator[dict[str, Any]]:
    """All parts of a schema that have keys."""
    if isinstance(kind, dict) and isinstance(kind.get("properties"), dict):
        yield kind
    for value in kind.values() if isinstance(kind, dict) else kind if isinstance(kind, list) else ():
        yield from objects(value)


def test_every_object_is_closed_and_whole() -> None:
    closed = list(objects(json_schema()))
    assert len(closed) > 15
    for kind in closed:
        assert kind["additionalProperties"] is False
        assert kind["required"] == [key for key in kind["properties"] if key != "beyond"]


@pytest.mark.parametrize("path", [("findings", 0), ("calls", 0, "locations", 0), ("partition",), ("capture",), ()])
def test_no_key_can_go_or_come_without_the_schema(path: tuple[str | int, ...]) -> None:
    whole = as_content(REPORTS["everything"])
    content = json.loads(json.dumps(whole))
    inside: Any = content
    for step in path:
        inside = inside[step]
    inside["new"] = 1
    assert "('new' was unexpected)" in problems(content)[0]
    del inside["new"]
    name, _ = inside.popitem()
    assert f"{name!r} is a required property" in problems(content)[0]


def test_a_number_that_json_cannot_write_is_a_word() -> None:
    report = REPORTS["everything"]
    run = msgspec.structs.replace(report.precision[0], outputs={"[0]": "inf", "[1]": "nan"})
    broken = msgspec.structs.replace(report, precision=(run,))
    content = json.loads(render(broken, "json"), parse_constant=pytest.fail)
    assert content["precision"][0]["outputs"] == {"[0]": "inf", "[1]": "nan"}
    assert problems(content) == []


def test_explain_prints_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", "explain", "schema"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == json_schema()
