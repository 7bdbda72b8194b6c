"""Arguments that this machine's CPU refuses: a Mac raises, too, in the words of its release, or checks nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import opcheck
from opcheck.model.records import Report


def _on_mps(*values: float) -> torch.Tensor:
    return torch.tensor(values, device="mps")


def _singular() -> torch.Tensor:
    return torch.zeros(3, 3, device="mps")


CALLS: dict[str, Callable[[], Any]] = {
    "inverse": lambda: torch.linalg.inv(_singular()),
    "solve": lambda: torch.linalg.solve(_singular(), torch.ones(3, 1, device="mps")),
    "lu": lambda: torch.linalg.lu_factor(_singular()),
    "cholesky": lambda: torch.linalg.cholesky(-torch.eye(3, device="mps")),
    "multinomial": lambda: torch.multinomial(_on_mps(-1.0, 2.0), 1),
    "no probability": lambda: torch.multinomial(_on_mps(0.0, 0.0), 1),
    "multinomial with replacement": lambda: torch.multinomial(_on_mps(-1.0, 2.0), 2, replacement=True),
    "normal": lambda: torch.empty(2, device="mps").normal_(0, -1),
    "deviations": lambda: torch.normal(_on_mps(0.0, 0.0), _on_mps(-1.0, 1.0)),
    "bernoulli": lambda: torch.bernoulli(_on_mps(2.0, 0.5)),
    "bernoulli in place": lambda: torch.empty(2, device="mps").bernoulli_(2.0),
    "random": lambda: torch.empty(2, device="mps").random_(5, 2),
    "exponential": lambda: torch.empty(2, device="mps").exponential_(-1),
    "integers by 0": lambda: _on_mps(1) // _on_mps(0),
    "remainder by 0": lambda: _on_mps(1) % 0,
    "cross entropy": lambda: F.binary_cross_entropy(_on_mps(2.0), _on_mps(1.0)),
    "offsets": lambda: F.embedding_bag(_on_mps(1, 2), torch.ones(3, 2, device="mps"), _on_mps(1)),
    "factors": lambda: torch.ones(2, 3, device="mps") @ torch.ones(2, 3, device="mps"),
    "view": lambda: torch.ones(6, device="mps").view(5),
    "targets": lambda: F.nll_loss(torch.ones(2, 3, device="mps"), _on_mps(0, 1, 2)),
    "logits": lambda: torch.distributions.Categorical(logits=_on_mps(float("nan"))),
    "k": lambda: torch.topk(_on_mps(1.0), 9),
    "pool": lambda: F.max_pool2d(torch.ones(1, 1, 2, 2, device="mps"), 9),
}  # fmt: skip

_LU = "torch.linalg.lu_factor: "

RAISED = [
    ("inverse", "2.9", RuntimeError, "linalg.inv: Argument 2 has illegal value"),
    ("inverse", "2.13", RuntimeError, "linalg.inv: The diagonal element 2 is zero"),
    ("inverse", "2.15", RuntimeError, "linalg.inv: The diagonal element 1 is zero"),
    ("solve", "2.13", RuntimeError, "torch.linalg.solve: The solver failed because the input matrix is singular"),
    ("lu", "2.13", RuntimeError, rf"{_LU}U\[2,2\] is zero"),
    ("cholesky", "2.13", RuntimeError, "the input is not positive-definite"),
    ("multinomial", "2.12", RuntimeError, "probability tensor contains either"),
    ("multinomial", "2.13", torch.AcceleratorError, "probability tensor contains either"),
    ("no probability", "2.0", RuntimeError, "sum of probabilities <= 0"),
    ("normal", "2.0", RuntimeError, "normal_mps_ expects std >= 0.0, but"),
    ("normal", "2.12", RuntimeError, "normal expects std >= 0.0, but found std -1"),
    ("deviations", "2.13", RuntimeError, "normal expects all elements of std >= 0.0"),
    ("bernoulli in place", "2.13", RuntimeError, r"bernoulli_mps_ expects p to be in \[0, 1\], but got p=2"),
    ("random", "2.12", RuntimeError, "random_mps_ expects 'from' to be less than 'to'"),
    ("random", "2.13", RuntimeError, "random_ expects 'from' to be less than 'to'"),
    ("exponential", "2.0", RuntimeError, "exponential_mps_: lambda must be greater than zero"),
    ("exponential", "2.13", RuntimeError, "exponential_ expects lambda > 0.0"),
    ("factors", "2.13", RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
    ("view", "2.13", RuntimeError, "is invalid for input of size 6"),
    ("targets", "2.13", ValueError, "to match target batch_size"),
    ("logits", "2.13", ValueError, "Expected parameter logits"),
    ("k", "2.13", RuntimeError, "selected index k out of range"),
    ("pool", "2.13", RuntimeError, "Output size is too small"),
]  # fmt: skip

GO_ON = [
    ("inverse", "2.6"),
    ("lu", "2.9"),
    ("multinomial with replacement", "2.9"),
    ("deviations", "2.9"),
    ("bernoulli", "2.13"),
    ("integers by 0", "2.13"),
    ("remainder by 0", "2.13"),
    ("cross entropy", "2.13"),
    ("offsets", "2.13"),
]


def run(name: str, release: str) -> tuple[BaseException | None, Report]:
    try:
        with opcheck.emulate(torch=release, macos="15") as emulation:
            CALLS[name]()
    except (RuntimeError, ValueError) as error:
        return error, emulation.report
    return None, emulation.report


@pytest.mark.parametrize(("name", "release", "kind", "text"), RAISED)
def test_what_all_devices_or_the_kernels_of_a_release_check_fails_on_a_mac(
    name: str, release: str, kind: type[Exception], text: str
) -> None:
    error, report = run(name, release)
    with pytest.raises(kind, match=text):
        raise error or AssertionError("nothing was raised")
    assert report.headline == "fails"
    assert "OC126" in {finding.rule for finding in report.findings}


@pytest.mark.parametrize(("name", "release"), GO_ON)
def test_what_no_kernel_of_a_release_checks_goes_on_with_an_unknown_result(name: str, release: str) -> None:
    error, report = run(name, release)
    assert error is None
    assert report.headline == "could not tell"


def test_an_error_that_the_program_raises_itself_is_none_of_a_mac() -> None:
    def program() -> None:
        raise ValueError(f"mine: {torch.ones(2, device='mps')}")

    with pytest.raises(ValueError, match="mine"), opcheck.emulate(torch="2.13") as emulation:
        program()
    assert emulation.report.headline == "could not tell"


def test_an_error_that_the_program_handles_leaves_no_finding() -> None:
    with opcheck.emulate(torch="2.13") as emulation, pytest.raises(RuntimeError):
        CALLS["cholesky"]()
    assert emulation.report.headline == "runs natively"
