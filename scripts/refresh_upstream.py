"""Write reports/upstream.md: changes of the newest release's kernels that are worth sending to PyTorch, each run here.

Usage: python scripts/refresh_upstream.py [RELEASE]
"""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The reference is the same on every processor: no vector extensions.
os.environ["ATEN_CPU_CAPABILITY"] = "default"

import msgspec
import torch

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import air, drivers, judging, kernel_names, library, pointwise, reference
from opcheck.kernels.judging import Judged
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.render.document import Document, Heading, Lines, Table
from opcheck.render.markdown import as_markdown
from scripts.pages import ROOT, page_text

CHANGES = Path(__file__).with_name("upstream_changes.yaml")
REPORT = ROOT / "reports" / "upstream.md"


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern of a kernel's code, and what replaces each match."""

    pattern: str
    by: str


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a kernel, in words and as code."""

    title: str
    operation: str
    kernel: str
    source: str
    inputs: tuple[tuple[str, ...], ...]
    statements: tuple[str, ...]
    change: str
    code: tuple[Replacement, ...]
    declared: tuple[str, ...] = ()


def changes() -> list[Change]:
    """Read the changes."""
    return msgspec.yaml.decode(CHANGES.read_bytes(), type=list[Change])


def apply(change: Change, text: str) -> str:
    """Return a kernel's code with the change.

    Raises:
        ValueError: a pattern does not match the code.
    """
    for replacement in change.code:
        text, count = re.subn(replacement.pattern, replacement.by, text)
        if not count:
            raise ValueError(f"{change.kernel} has no {replacement.pattern}")
    lacking = [f"declare {line}" for line in change.declared if f"declare {line}" not in text]
    return "\n".join([text, *lacking, ""])


def judge(machine: KernelMachine, change: Change, text: str) -> Judged:
    """Run a kernel over the inputs of its family, and compare."""
    kernel = machine.kernel(machine.compile(text, change.kernel))
    if drivers.is_driven(change.kernel):
        return drivers.judge(change.kernel, kernel)
    return pointwise.Driver().judge(kernel_names.parse(change.kernel), kernel)


def results(machine: KernelMachine, change: Change, text: str) -> list[str]:
    """Return what a kernel gives for the inputs of the change."""
    named = kernel_names.parse(change.kernel)
    kernel = machine.kernel(machine.compile(text, change.kernel))
    dtype = pointwise.DTYPES[named.types[0]]
    parameters = reference.parameters(named.operation, dtype)
    calls = (pointwise.PointwiseCall(dtype, operands, torch.arange(1)) for operands in _operands(change))
    return [judging.text(pointwise.run(named, kernel, call, parameters)[0]) for call in calls]


def _operands(change: Change) -> Iterator[tuple[torch.Tensor, ...]]:
    dtype = pointwise.DTYPES[kernel_names.parse(change.kernel).types[0]]
    for inputs in change.inputs:
        numbers = (complex(text) if text.endswith("j") else float(text) for text in inputs)
        yield tuple(torch.tensor([number], dtype=dtype) for number in numbers)


def _expected(change: Change) -> Iterator[str]:
    for operands in _operands(change):
        value = pointwise.expect(change.operation, operands, ()).value[0]
        yield judging.text(value if operands[0].dtype == torch.complex32 else value.to(operands[0].dtype))


def document(release: str, machine: KernelMachine) -> Document:
    """The changes, with what each kernel gives before and after."""
    chosen = library.read(release)
    blocks: list[Any] = [
        Heading("Changes worth sending to PyTorch", 1),
        Lines((*page_text("upstream").splitlines(), f"torch {release}.")),
    ]
    for change in changes():
        stated = ", ".join(change.statements)
        text = str(air.parse(chosen.functions[change.kernel].bitcode))
        changed = apply(change, text)
        before, after = judge(machine, change, text), judge(machine, change, changed)
        blocks += [
            Heading(change.title),
            Lines(
                (
                    f"Kernel {change.kernel}, source {change.source}; stated by {stated}.",
                    change.change,
                    _count(before, after),
                )
            ),
        ]
        if change.inputs:
            rows = zip(
                (", ".join(inputs) for inputs in change.inputs),
                results(machine, change, text),
                results(machine, change, changed),
                _expected(change),
                strict=True,
            )
            blocks.append(Table(("input", "before", "after", "right"), tuple(rows), (0,)))
    return tuple(blocks)


def _count(before: Judged, after: Judged) -> str:
    return f"Of {before.compared:,} results {before.wrong:,} are wrong before the change, {after.wrong:,} after it."


def main() -> None:
    """Run the kernels, and write the report."""
    warnings.filterwarnings("ignore", message="ComplexHalf")
    machine = KernelMachine(default_cache().parent / "kernels")
    release = sys.argv[1] if len(sys.argv) > 1 else "2.15.0"
    REPORT.write_text(as_markdown(document(release, machine)), encoding="utf-8")


if __name__ == "__main__":
    main()
