"""Writes the report of a kernel's wrong results for PyTorch's issue tracker."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import torch

from opcheck.common import documents
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.tool import TOOL
from opcheck.common.versions import Version
from opcheck.kernels import judging
from opcheck.kernels.kernel_records import KernelOutcome, KernelRun, Sample, extent
from opcheck.kernels.reference import FUNCTIONS, OPERATIONS

#: The dtypes that have all digits of a Mac's numbers.
_FULL = frozenset(["float32", "complex64"])
_TEMPLATE = Template(documents.read_text(Path(__file__).with_name("issue.template")))


def call(operation: str) -> str:
    """Return the Python call of an operation, with {} for its operands; empty if none is known."""
    if operation in FUNCTIONS or operation in OPERATIONS:
        return OPERATIONS[operation].call if operation in OPERATIONS else ""
    name = operation.removesuffix("_forward")
    for module in ("torch", "torch.special"):
        if callable(getattr(torch if module == "torch" else torch.special, name, None)):
            return f"{module}.{name}({{}})"
    return ""


def title(run: KernelRun, operation: str) -> str:
    """Return the title of the issue; empty if there is nothing to report."""
    kinds = _kinds(run, operation)
    if not kinds:
        return ""
    dtypes = ", ".join(dict.fromkeys(kind.dtype for kind in kinds))
    return f"[MPS] {_name(operation)} is wrong for some inputs of {dtypes}"


def text(run: KernelRun, operation: str) -> str:
    """Return the Markdown of an issue about an operation's wrong results in a run.

    A result that the CPU gives as well, in the same dtype, is nothing that this tracker's label for MPS is about, and
    is left out; the text is empty if nothing else is wrong.
    """
    kinds = _kinds(run, operation)
    return _TEMPLATE.substitute(_words(run, operation, kinds)) if kinds else ""


class _WrongResult(NamedTuple):
    """One wrong result, and the kernels that have it as their simplest."""

    dtype: str
    sample: Sample
    #: what the CPU gives in the same dtype; empty if it lacks the dtype, or no call of the operation is known
    cpu: str
    outcomes: list[KernelOutcome]


def _kinds(run: KernelRun, operation: str) -> list[_WrongResult]:
    """Return the wrong results, the clearest first: grossly wrong before wrong in digits, float32 before the others."""
    # The dtype of the inputs is the last of the dtypes in a kernel's name.
    outcomes = group_values(
        ((outcome.dtypes[-1], outcome.smallest), outcome)
        for outcome in run.outcomes
        if outcome.operation == operation and outcome.verdict == "wrong" and outcome.smallest
    )
    kinds = [
        _WrongResult(dtype, sample, _on_cpu(call(operation), sample, dtype), members)
        for (dtype, sample), members in outcomes.items()
    ]
    return sorted(
        (kind for kind in kinds if kind.cpu != kind.sample.result),
        key=lambda kind: (not kind.cpu, not kind.sample.gross, kind.dtype not in _FULL, -len(kind.outcomes)),
    )


def _on_cpu(expression: str, sample: Sample, dtype: str) -> str:
    """Return the result of a call on the CPU, in the same dtype."""
    if not expression:
        return ""
    names: dict[str, Any] = {"torch": torch}
    program = [*_inputs(sample, dtype, "'cpu'"), f"result = {expression.format(', '.join(_operands(sample)))}"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ComplexHalf is experimental
        try:
            exec("\n".join(program), names)  # noqa: S102  (our own text)
        except RuntimeError:
            return ""  # not implemented for the dtype
    return judging.text(names["result"][0])


def _words(run: KernelRun, operation: str, kinds: Sequence[_WrongResult]) -> dict[str, object]:
    """Return the words of the template."""
    dtype, sample, cpu, _ = kinds[0]
    outcomes = [outcome for kind in kinds for outcome in kind.outcomes]
    since = sorted({outcome.since for outcome in outcomes if outcome.since}, key=Version.parse)
    expression, rows = call(operation), []
    for kind in kinds:
        numbers = (kind.sample.result, kind.sample.expected, kind.cpu or "-", str(len(kind.outcomes)))
        extents = (cell or "-" for cell in extent(kind.outcomes))
        rows.append(f"| {' | '.join((kind.dtype, ', '.join(kind.sample.inputs), *numbers, *extents))} |")
    return {
        "name": _name(operation),
        **pick(run, "torch", "section"),
        "tool": TOOL,
        "result": sample.result,
        "arguments": ", ".join(sample.inputs),
        "dtype": dtype,
        "right": f"the CPU gives {cpu}" if cpu else f"computed in float64 it is {sample.expected}",
        "program": "\n".join(["", "```python", *_program(expression, sample, dtype), "```", ""]) if expression else "",
        "count": len(outcomes),
        "kernels": "kernel" if len(outcomes) == 1 else "kernels",
        "began": f", in releases since {since[0]} or before" if since else "",
        "rows": "\n".join(rows),
        "listed": "\n".join(f"- `{o.kernel}`: {o.wrong:,} of {o.compared:,} inputs" for o in outcomes),
    }


def _name(operation: str) -> str:
    """Return the function of torch that reaches the operation, else the operation."""
    return call(operation).partition("(")[0] or operation


def _operands(sample: Sample) -> list[str]:
    several = len(sample.inputs) > 1
    return [f"x{number}" if several else "x" for number in range(len(sample.inputs))]


def _inputs(sample: Sample, dtype: str, device: str) -> Iterator[str]:
    """Yield the lines that make the operands; ``device`` as it is written in the program."""
    for name, value in zip(_operands(sample), sample.inputs, strict=True):
        special = "inf" in value or "nan" in value
        kind = "complex" if value.endswith("j") else "float"
        literal = f'{kind}("{value}")' if special else value
        yield f"{name} = torch.tensor([{literal}], dtype=torch.{dtype}, device={device})"


def _program(expression: str, sample: Sample, dtype: str) -> Iterator[str]:
    yield from ("import torch", "", 'for device in ("cpu", "mps"):')
    yield from (f"    {line}" for line in _inputs(sample, dtype, "device"))
    yield f"    print(device, {expression.format(', '.join(_operands(sample)))})"
