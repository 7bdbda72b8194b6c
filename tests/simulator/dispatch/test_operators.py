"""The registry of operators: one place for each, and no operator's name elsewhere in the simulator."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

import opcheck.simulator
from opcheck.common.yaml_text import load_shipped
from opcheck.data.extensions import LIBRARIES
from opcheck.data.registrations import load
from opcheck.simulator.dispatch import operators
from opcheck.simulator.dispatch.operators import OPERATORS, PLAIN
from opcheck.simulator.dispatch.operators.operator import FUNCTIONS, Operator, fact

#: an operator's name, and no bare namespace
NAME = re.compile(rf"({'|'.join(('aten', *LIBRARIES))})::\w")
ROOT = Path(opcheck.simulator.__file__).parent / "dispatch"


def test_no_operator_is_registered_twice() -> None:
    entries = load_shipped(Path(operators.__file__).with_name("operators.yaml"))
    counts = Counter(name for entry in entries for name in entry["names"])
    assert [name for name, count in counts.items() if count > 1] == []
    assert counts.keys() | FUNCTIONS.keys() == OPERATORS.keys()


def test_an_operator_has_one_function_for_a_fact() -> None:
    with pytest.raises(ValueError, match="two functions as branch"):
        fact("branch", "aten::kl_div")(print)


def test_every_registration_is_of_an_operator_that_some_release_has() -> None:
    lists = load()
    known = {*lists.names()}
    for line in (release.line for release in lists.releases):
        for namespace in LIBRARIES:
            extension = lists.extension(namespace, line)
            known |= {*extension[1]} if extension else set()
    assert OPERATORS.keys() - known == set()


def test_every_registration_says_something() -> None:
    facts = [field.name for field in fields(Operator) if field.name != "_"]
    for name, operator in OPERATORS.items():
        assert any(getattr(operator, fact) != getattr(PLAIN, fact) for fact in facts), name


def _names_in(path: Path) -> list[str]:
    return [
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.match(node.value)
    ]


def test_no_operator_is_named_outside_of_the_registry() -> None:
    """What the dispatcher treats in its own way has a role there, and is not known by its name."""
    folder = ROOT / "operators"
    assert any(_names_in(path) for path in folder.glob("*.py"))
    elsewhere = {path.name: _names_in(path) for path in ROOT.glob("*.py")}
    assert {file: names for file, names in elsewhere.items() if names} == {}
