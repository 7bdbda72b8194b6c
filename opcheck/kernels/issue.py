"""Writes the text about a kernel's wrong results that PyTorch's issue tracker asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from opcheck.common.tool import TOOL
from opcheck.kernels.records import Outcome, Run, Sample
from opcheck.kernels.reference import FUNCTIONS, PARAMETERS

#: Calls of operations whose functor is not called as the function in torch; {} stands for the operands.
CALLS = {
    "div_true": "torch.true_divide({})",
    "div_floor": 'torch.div({}, rounding_mode="floor")',
    "div_trunc": 'torch.div({}, rounding_mode="trunc")',
    "sqr": "torch.square({})",
    "trigamma": "torch.polygamma(1, {})",
    "polygamma": "torch.polygamma(2, {})",
    "make_complex": "torch.complex({})",
    "gelu": "torch.nn.functional.gelu({})",
    "gelu_tanh": 'torch.nn.functional.gelu({}, approximate="tanh")',
    "log_sigmoid_forward": "torch.nn.functional.logsigmoid({})",
    "silu": "torch.nn.functional.silu({})",
    "mish": "torch.nn.functional.mish({})",
    "elu": "torch.ops.aten.elu({}, 1.5, 1.25, 0.75)",
    "softplus": "torch.nn.functional.softplus({}, 2.0, 3.0)",
    "round_decimals": "torch.round({}, decimals=2)",
    "pow_scalar": "torch.pow({}, 3)",
    "add_alpha": "torch.add({}, alpha=2)",
    "sub_alpha": "torch.sub({}, alpha=2)",
    "lerp_alpha": "torch.lerp({}, 0.25)",
}


def call(operation: str) -> str:
    """Return the Python call of an operation, with {} for its operands; empty if none is known."""
    if operation in CALLS:
        return CALLS[operation]
    if operation in FUNCTIONS or operation in PARAMETERS:
        return ""
    name = operation.removesuffix("_forward")
    for module in ("torch", "torch.special"):
        if callable(getattr(torch if module == "torch" else torch.special, name, None)):
            return f"{module}.{name}({{}})"
    return ""


def text(run: Run, operation: str) -> str:
    """Return the Markdown of an issue about an operation's wrong results in a run; empty if it has none."""
    wrong = [o for o in run.outcomes if o.operation == operation and o.verdict == "wrong"]
    if not wrong:
        return ""
    return "\n".join(_body(run, operation, wrong)) + "\n"


def _body(run: Run, operation: str, wrong: Sequence[Outcome]) -> Iterator[str]:
    worst = _clearest(wrong)
    sample = worst.smallest
    assert sample is not None
    dtype = _dtype(worst)
    expression = call(operation)
    yield from ("### 🐛 Describe the bug", "")
    arguments = ", ".join(sample.inputs)
    yield (
        f"`{expression.format(arguments) if expression else operation}` of {dtype} gives {sample.result} on MPS, torch "
        f"{run.torch}; the CPU gives {sample.expected}."
    )
    if expression:
        yield from ("", "```python", *_program(expression, sample, dtype), "```")
    yield from ("", "The kernels with wrong results:", "")
    yield from (
        "| kernel | inputs compared | wrong | simplest input | result | expected |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for outcome in wrong:
        if outcome.smallest is not None:
            example = outcome.smallest
            cells = (", ".join(example.inputs), example.result, example.expected)
            yield f"| `{outcome.kernel}` | {outcome.compared:,} | {outcome.wrong:,} | {' | '.join(cells)} |"
    yield from (
        "",
        "### Versions",
        "",
        f"PyTorch version: {run.torch} (the macOS arm64 wheel, section {run.section})",
        "",
    )
    yield (
        f"Found by {TOOL}, which ran the Metal kernels of the wheel on a CPU; nothing was observed on a Mac. "
        "<!-- run the program on a Mac before this is sent, then replace this line by what "
        "`python -m torch.utils.collect_env` prints there -->"
    )


def _clearest(wrong: Sequence[Outcome]) -> Outcome:
    """Return the outcome to begin with: grossly wrong before wrong in digits, float32 before the others."""
    return min(
        (outcome for outcome in wrong if outcome.smallest is not None),
        key=lambda o: (
            o.smallest is None or not o.smallest.gross,
            "float32" not in o.dtypes,
            o.kernel,
        ),
    )


def _dtype(outcome: Outcome) -> str:
    """Return the dtype of the inputs, which is the last of the dtypes in a kernel's name."""
    return outcome.dtypes[-1]


def _program(expression: str, sample: Sample, dtype: str) -> Iterator[str]:
    yield from ("import torch", "", 'for device in ("cpu", "mps"):')
    names = [
        f"x{number}" if len(sample.inputs) > 1 else "x" for number in range(len(sample.inputs))
    ]
    for name, value in zip(names, sample.inputs, strict=True):
        literal = f'float("{value}")' if value.lstrip("-") in {"inf", "nan"} else value
        yield f"    {name} = torch.tensor([{literal}], dtype=torch.{dtype}, device=device)"
    yield f"    print(device, {expression.format(', '.join(names))})"
