"""Public incidents of wrong numbers: a program shows them on exactly the releases that have them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("llvmlite")

import torch

import opcheck
from opcheck.model.records import KernelNumbers

pytestmark = pytest.mark.wheel


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    program: str
    op: str
    wrong: tuple[str, ...]
    right: tuple[str, ...]


INCIDENTS = {
    each.name: each
    for each in msgspec.yaml.decode(Path(__file__).with_name("incidents.yaml").read_bytes(), type=list[Incident])
}
CASES = [(name, line) for name, each in INCIDENTS.items() for line in (*each.wrong, *each.right)]


def numbers_of(program: str, line: str) -> KernelNumbers:
    with opcheck.emulate(torch=line, kernels="shadow") as run:
        exec(compile(program, "program", "exec"), {"torch": torch, "device": "mps"})  # noqa: S102 - our own
    assert run.numbers is not None
    return run.numbers


def test_there_are_enough_of_them_and_each_is_public() -> None:
    assert len(INCIDENTS) >= 5
    for each in INCIDENTS.values():
        assert re.fullmatch(r"https://github\.com/pytorch/pytorch/(issues|pull)/\d+", each.address)


@pytest.mark.parametrize(("name", "line"), CASES)
def test_a_program_shows_an_incident_on_exactly_its_releases(name: str, line: str) -> None:
    incident = INCIDENTS[name]
    numbers = numbers_of(incident.program, line)
    assert numbers.calls.checked
    if line in incident.right:
        assert not numbers.wrong
        return
    (wrong,) = numbers.wrong
    assert wrong.op == incident.op
    assert wrong.elements
    assert wrong.mended == incident.right[0]
    assert wrong.smallest.result != wrong.smallest.expected
