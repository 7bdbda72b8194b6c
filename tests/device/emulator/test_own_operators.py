"""An operator that a program registers in Python does on a Mac what its own kernels do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import opcheck


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library("of_a_program", "DEF")
    made.define("twice(Tensor x) -> Tensor")
    yield made
    made._destroy()


def test_its_kernel_for_mps_runs(library: torch.library.Library) -> None:
    library.impl("twice", torch.sinh, "MPS")
    with opcheck.emulate("2.13", "15") as run:
        made = torch.ops.of_a_program.twice(torch.zeros(2, device="mps"))
        assert (made.device.type, made.tolist()) == ("mps", [0, 0])
    assert {group.op for group in run.report.groups} >= {"aten::sinh"}
    assert {group.verdict.status for group in run.report.groups} == {"native"}


def test_its_kernel_for_mps_is_preferred_to_that_for_the_cpu(library: torch.library.Library) -> None:
    library.impl("twice", lambda x: x + 1, "CPU")
    library.impl("twice", lambda x: x * 2, "MPS")
    with opcheck.emulate("2.13", "15"):
        assert torch.ops.of_a_program.twice(torch.full((1,), 5.0, device="mps")).tolist() == [10]
        assert torch.ops.of_a_program.twice(torch.full((1,), 5.0)).tolist() == [6]


def test_without_one_a_mac_refuses_it(library: torch.library.Library) -> None:
    library.impl("twice", lambda x: x + 1, "CPU")
    text = "The operator 'of_a_program::twice' is not currently implemented for the MPS device"
    with opcheck.emulate("2.13", "15") as run, pytest.raises(NotImplementedError, match=text):
        torch.ops.of_a_program.twice(torch.ones(1, device="mps"))
    assert [finding.rule for finding in run.report.findings if finding.severity == "error"] == ["OC102"]
    with opcheck.emulate("2.13", "15", fallback=True), pytest.warns(UserWarning, match="fall back to run on the CPU"):
        assert torch.ops.of_a_program.twice(torch.ones(1, device="mps")).tolist() == [2]


def test_a_custom_op_for_one_device_is_refused_on_another() -> None:
    @torch.library.custom_op("of_a_program::thrice", mutates_args=(), device_types="cpu")
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    with opcheck.emulate("2.13", "15"), pytest.raises(NotImplementedError, match="'of_a_program::thrice' is not"):
        thrice(torch.ones(1, device="mps"))
    thrice.register_kernel("mps")(lambda x: x * 3)
    with opcheck.emulate("2.13", "15"):
        assert thrice(torch.ones(1, device="mps")).tolist() == [3]
