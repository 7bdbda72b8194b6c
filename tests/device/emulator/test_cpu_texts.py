"""The CPU computes in place of MPS: its own texts are not the Mac's, and are shown as such only where it runs."""

from __future__ import annotations

import contextlib

import pytest
import torch

import opcheck
from opcheck.capture.child import endings

_BOOL = "torch.ones(2, 2, device='mps', dtype=torch.bool)"
_INTS = "torch.ones(4, device='mps', dtype=torch.int32)"
_FLOAT = "torch.ones(1, 2, 2, device='mps')"
_HALF = f"{_FLOAT}.half()"


def raised(source: str, release: str = "2.11", *, fallback: bool = False) -> BaseException:
    """What an expression raises on the emulated Mac."""
    with opcheck.emulate(torch=release, macos="15", fallback=fallback):
        try:
            eval(source, {"torch": torch})  # noqa: S307 - what a program would do
        except BaseException as error:  # noqa: BLE001
            return error
    raise AssertionError(f"{source} raised nothing")


@pytest.mark.parametrize(
    ("source", "release", "text"),
    [
        (f"torch.histc({_INTS}, 3)", "2.11", "\"histogram_mps\" not implemented for 'Int'"),
        (f"torch.histc({_BOOL}, 3)", "2.14", "\"histogram_mps\" not implemented for 'Bool'"),
        (f"torch.histc({_BOOL}, 3)", "2.15", "\"histc_mps\" not implemented for 'Bool'"),
        (f"torch.histogram({_INTS}, 3)", "2.11", "\"histogram_mps\" not implemented for 'Int'"),
        (f"{_INTS}.softmax(0)", "2.10", "softmax only supported for floating types"),
        (f"torch.histogram({_INTS}, 3)", "2.13", "histogram is only supported for float32"),
        (
            "torch.arange(5, device='mps', dtype=torch.bool)",
            "2.13",
            "\"arange_mps\" not implemented for 'Bool'",
        ),
        (
            "torch.rand(2, device='mps', dtype=torch.int32)",
            "2.13",
            "\"check_uniform_bounds\" not implemented for 'Int'",
        ),
        (
            "torch.nn.functional.embedding(torch.ones(3, device='mps'), torch.ones(3, 3, device='mps'))",
            "2.13",
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            "Long, Int; but got MPSFloatType instead (while checking arguments for embedding)",
        ),
        (f"{_HALF}[0] @ {_FLOAT}[0]", "2.7", "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float"),
        (f"{_HALF} @ {_FLOAT}", "2.12", "Expected arguments of same type but got Half and Float"),
        (
            f"torch.nn.functional.conv1d({_HALF}, {_FLOAT})",
            "2.12",
            "Input type (MPSHalfType) and weight type (MPSFloatType) should be the same",
        ),
    ],
)  # fmt: skip
def test_where_the_sources_of_mps_have_a_text_it_is_theirs(source: str, release: str, text: str) -> None:
    error = raised(source, release)
    assert isinstance(error, RuntimeError)
    assert str(error) == text
    assert endings.kind_of(error) == ""


@pytest.mark.parametrize(
    ("source", "operator", "dtype"),
    [
        (f"{_BOOL} @ {_BOOL}", "aten::mm", "bool"),
        (f"torch.addmm({_BOOL}, {_BOOL}, {_BOOL})", "aten::addmm", "bool"),
        (f"torch.mv({_BOOL}, {_BOOL}[0])", "aten::mv", "bool"),
        ("torch.ones(2, device='mps', dtype=torch.complex64).sort()", "aten::sort", "complex64"),
        (f"torch.topk({_BOOL}, 1)", "aten::topk", "bool"),
        (f"torch.histogram({_INTS}, {_INTS})", "aten::histogram.bins_tensor", "int32"),
    ],
)
def test_a_dtype_that_no_backend_computes_is_refused(source: str, operator: str, dtype: str) -> None:
    error = raised(source, "2.13")
    # A program that has a way for it still goes that way.
    assert isinstance(error, NotImplementedError)
    assert endings.kind_of(error) == ""
    assert f"{operator}: no backend computes it in {dtype}" in str(error)
    assert "_cpu" not in str(error)


def test_what_the_cpu_alone_refuses_is_a_limit_of_opcheck_and_unknown() -> None:
    source = "torch.ones(2, device='mps', dtype=torch.uint16)"
    with opcheck.emulate(torch="2.13", macos="15") as run:
        values = eval(source, {"torch": torch})  # noqa: S307 - as above
        with pytest.raises(NotImplementedError, match="this machine's CPU") as caught:
            values.flip(0)
    assert endings.kind_of(caught.value) == "opcheck_limit"
    problem = endings.problem_of(caught.value, "opcheck_limit", None)
    assert "a limit of opcheck" in problem.message
    assert "refuses UInt16" in str(caught.value)
    by_name = {group.op: group.verdict for group in run.report.groups}
    assert by_name["aten::flip"].status == "unknown"
    assert by_name["aten::ones"].status == "native"


def test_a_program_that_catches_a_refused_dtype_does_not_run_natively() -> None:
    with opcheck.emulate(torch="2.15") as run:
        values = torch.ones(2, device="mps")
        with contextlib.suppress(NotImplementedError):
            torch.gcd(values, values)
    assert run.report.headline == "fails"
    assert {group.op for group in run.report.groups if group.verdict.status != "native"} == {"aten::gcd"}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "torch.ones(2, 3, device='mps') @ torch.ones(2, 3, device='mps')",
            "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
        ),
        ("torch.ones(3, device='mps').view(2)", "shape '[2]' is invalid for input of size 3"),
        (
            "torch.floor(torch.ones(2, device='mps', dtype=torch.complex64))",
            "floor is not supported for complex inputs",
        ),
        (f"{_INTS}.norm()", "Got Int instead."),
    ],
)  # fmt: skip
def test_a_text_of_shared_code_stays(source: str, text: str) -> None:
    error = raised(source, "2.13")
    assert text in str(error)
    assert endings.kind_of(error) == ""


def test_where_a_mac_falls_back_the_cpus_text_is_the_macs() -> None:
    error = raised(f"torch.histc({_INTS}, 3)", "2.0", fallback=True)
    assert str(error) == "\"histogram_cpu\" not implemented for 'Int'"
    assert endings.kind_of(error) == ""


def test_integers_are_counted_where_the_macs_kernel_takes_them() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        experts = torch.tensor([0, 2, 2, 3, 7], device="mps", dtype=torch.int32)
        counts = torch.histc(experts, bins=8, min=0, max=7)
        assert counts.device.type == "mps"
        assert counts.dtype is torch.int32
        assert counts.tolist() == [1, 0, 2, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("source", "release", "headline"),
    [
        # LinearAlgebra.mm checks no dtypes here, and Linear.mm in no release.
        (f"torch.mm({_HALF}[0], {_FLOAT}[0])", "2.6", "could not tell"),
        (f"torch.bmm({_HALF}, {_FLOAT})", "2.9", "could not tell"),
        (f"torch.nn.functional.linear({_HALF}, {_FLOAT}[0])", "2.15", "could not tell"),
        (f"torch.mm({_HALF}[0], {_FLOAT}[0])", "2.7", "runs natively"),
        (f"torch.mm({_FLOAT}[0], {_FLOAT}[0, :1])", "2.6", "runs natively"),
    ],
)
def test_an_error_of_this_cpu_alone_is_unknown_where_the_program_handles_it(
    source: str, release: str, headline: str
) -> None:
    with opcheck.emulate(torch=release, macos="15") as run, contextlib.suppress(RuntimeError):
        eval(source, {"torch": torch})  # noqa: S307 - what a program would do
    assert run.report.headline == headline
