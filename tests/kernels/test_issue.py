"""The text for PyTorch's tracker: its program runs, and it says what was and was not seen."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
import torch

from opcheck.kernels import issue
from opcheck.kernels.kernel_records import KernelOutcome, KernelRun, Sample
from opcheck.kernels.reference import OPERATIONS


def run(operation: str, dtypes: tuple[str, ...], sample: Sample | None) -> KernelRun:
    outcome = KernelOutcome(
        kernel=f"{operation}_dense",
        family="unary",
        operation=operation,
        dtypes=dtypes,
        verdict="wrong" if sample else "right",
        compared=10,
        wrong=1 if sample else 0,
        smallest=sample,
    )
    return KernelRun(torch="2.99.0", section="metal_basic", seed=0, seconds=1.0, outcomes=(outcome,))


@pytest.mark.parametrize(
    ("operation", "dtype", "inputs", "printed"),
    [
        ("acos", "complex64", ("1+0j",), "tensor([0.-0.j])"),
        ("div_floor", "float32", ("33", "0.001"), "tensor([32999.])"),
        ("remainder", "float32", ("7", "inf"), "tensor([7.])"),
        ("bessel_j0_forward", "float32", ("0",), "tensor([1.])"),
        ("maximum", "float32", ("nan", "-inf"), "tensor([nan])"),
        ("exp", "complex64", ("-inf+0j",), "tensor([0.+0.j])"),
    ],
)
def test_the_program_runs(operation: str, dtype: str, inputs: tuple[str, ...], printed: str) -> None:
    sample = Sample(inputs=inputs, result="77", expected="1")
    text = issue.text(run(operation, (dtype, dtype), sample), operation)
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard):
        exec(program[1].replace('"mps"', '"cpu"'), {})  # noqa: S102  (our own text)
    assert heard.getvalue() == f"cpu {printed}\n" * 2
    assert "in torch 2.99.0 gives 77 for" in text
    assert "not observed on a Mac" in text


def test_an_operation_without_a_call_has_no_program() -> None:
    sample = Sample(inputs=("1",), result="2", expected="1")
    text = issue.text(run("shrink_backward", ("float32", "float32"), sample), "shrink_backward")
    assert "```python" not in text
    assert "`shrink_backward` in torch 2.99.0 gives 2 for 1 of float32" in text
    assert "computed in float64 it is 1." in text


@pytest.mark.parametrize(
    ("operation", "dtype", "result"),
    [("gelu", "float32", "-1.49011612e-06"), ("sigmoid_backward", "complex64", "nan+nanj")],
)
def test_what_the_cpu_gives_too_is_nothing_to_report(operation: str, dtype: str, result: str) -> None:
    inputs = ("-5",) if operation == "gelu" else ("0+0j", "0+1e+20j")
    sample = Sample(inputs=inputs, result=result, expected="1")
    assert issue.text(run(operation, (dtype, dtype), sample), operation) == ""
    other = Sample(inputs=inputs, result="7", expected="1")
    assert f"the CPU gives {result}" in issue.text(run(operation, (dtype,), other), operation)


def test_a_dtype_that_the_cpu_lacks_is_held_against_float64() -> None:
    sample = Sample(inputs=("-9",), result="-0.09", expected="-0.0903320312")
    text = issue.text(run("bessel_j0_forward", ("float16",), sample), "bessel_j0_forward")
    assert "the CPU gives" not in text
    assert issue.title(run("bessel_j0_forward", ("float16",), sample), "bessel_j0_forward") == (
        "[MPS] torch.special.bessel_j0 is wrong for some inputs of float16"
    )


def test_what_is_right_makes_no_text() -> None:
    assert issue.text(run("acos", ("float32", "float32"), None), "acos") == ""


@pytest.mark.parametrize("operation", [name for name, each in OPERATIONS.items() if each.call])
def test_every_call_that_is_spelled_out_runs(operation: str) -> None:
    operands = "x, x" if operation.startswith(("div", "add", "sub", "make", "lerp", "logadd")) else "x"
    operands = "x, x, x" if operation == "lerp" else operands
    operands = "x, x" if operation.endswith("_backward") else operands
    names = {"torch": torch, "x": torch.tensor([0.5])}
    result = eval(issue.call(operation).format(operands), names)  # noqa: S307  (our own text)
    assert result.isfinite().all()
