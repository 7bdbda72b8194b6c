"""What torch.mps, torch.accelerator, autocast and torch.compile document does on the emulated Mac what it does there."""

from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.simulator.errors import ProcessAbortedError


@pytest.mark.parametrize(
    "call",
    [
        "torch.mps.event.Event(enable_timing=True).record()",
        "torch.mps.Event().synchronize()",
        "torch.mps.profiler.start()",
        "torch.mps.profiler.stop()",
        "torch.mps.profiler.is_metal_capture_enabled() is False or 1 / 0",
        "torch.mps.profiler.is_capturing_metal() is False or 1 / 0",
        "torch.mps.empty_cache()",
        "torch.accelerator.set_device_index(0)",
        "torch.accelerator.device_index(0).__enter__()",
        "torch.accelerator.synchronize()",
        "torch.accelerator.current_stream().synchronize()",
        "torch.backends.mps.get_name()",
    ],
)
def test_the_documented_calls_work(call: str) -> None:
    code = compile(f"import torch\n{call}\n", __file__, "exec")
    with opcheck.emulate(torch="2.13", macos="15"):
        exec(code, {})  # noqa: S102 - a line of this test's


def test_a_stream_is_made_since_2_5() -> None:
    with (
        opcheck.emulate(torch="2.4", macos="15"),
        pytest.raises(RuntimeError, match="Backend doesn't support create a new Stream"),
    ):
        torch.Stream("mps")
    with opcheck.emulate(torch="2.5", macos="15"):
        assert isinstance(torch.Stream("mps"), torch.Stream)


@pytest.mark.parametrize(("release", "line"), [("2.9", 110), ("2.12", 256)])
def test_memory_of_the_accelerator_is_refused_before_2_13(release: str, line: int) -> None:
    with (
        pytest.raises(RuntimeError, match=f'":{line}, please report a bug to PyTorch. Allocator for mps is not a Dev'),
        opcheck.emulate(torch=release, macos="15") as run,
    ):
        torch.accelerator.empty_cache()
    assert run.report.headline == "fails"


def test_memory_of_the_accelerator_is_that_of_the_allocator_since_2_13() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        x = torch.zeros(1000, device="mps")
        y = torch.zeros(1 << 20, device="mps")
        del y
        assert torch.accelerator.memory_allocated() == 4096
        assert torch.accelerator.max_memory_allocated() == 4096 + (4 << 20)
        assert torch.accelerator.memory_reserved() == (8 + 32) << 20
        free, total = torch.accelerator.get_memory_info()
        assert total - free == torch.accelerator.memory_reserved()
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats()
        assert torch.accelerator.max_memory_allocated() == x.untyped_storage().nbytes() + 96
        assert torch.accelerator.max_memory_reserved() == 8 << 20


@pytest.mark.parametrize(("release", "count"), [("2.12", 14), ("2.15", 15)])
def test_the_accelerator_lists_its_dtypes_since_2_12(release: str, count: int) -> None:
    with opcheck.emulate(torch=release, macos="26"):
        dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert len(dtypes) == count
    assert torch.float64 not in dtypes


def test_the_accelerator_lists_no_dtypes_before_2_12() -> None:
    with opcheck.emulate(torch="2.11", macos="15"), pytest.raises(RuntimeError, match="getting device capabilities"):
        torch.accelerator.get_device_capability()


def test_emptying_the_host_cache_ends_the_process_before_2_15_alone() -> None:
    with pytest.raises(ProcessAbortedError, match="a segmentation fault"), opcheck.emulate("2.14", "15") as run:
        torch.accelerator.empty_host_cache()
    assert run.report.headline == "fails"
    with opcheck.emulate("2.15", "15"):
        torch.accelerator.empty_host_cache()


@pytest.mark.parametrize(
    ("release", "text"),
    [
        ("1.13", "User specified autocast device_type must be 'cuda' or 'cpu'"),
        ("2.0", "User specified autocast device_type must be 'cuda' or 'cpu'"),
        ("2.1", "User specified an unsupported autocast device_type 'mps'"),
        ("2.4", "User specified an unsupported autocast device_type 'mps'"),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_is_refused_before_2_5(release: str, text: str, *, enabled: bool) -> None:
    with (
        opcheck.emulate(torch=release, macos="15") as run,
        pytest.raises(RuntimeError) as caught,
        torch.autocast("mps", dtype=torch.float16, enabled=enabled),
    ):
        pass
    assert str(caught.value) == text
    assert run.report.schema


def test_autocast_says_what_it_is() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        with torch.autocast("mps", dtype=torch.float16):
            assert torch.is_autocast_enabled("mps")
            assert torch.get_autocast_dtype("mps") is torch.float16
            # torch/csrc/autograd/init.cpp, is_any_autocast_enabled, asks for CPU, CUDA, XPU, IPU, XLA, HPU and
            # PrivateUse1, and not for MPS.
            assert not torch._C._is_any_autocast_enabled()
            with torch.autocast("mps", enabled=False):
                assert not torch.is_autocast_enabled("mps")
            with torch.autocast("cpu"):
                assert torch._C._is_any_autocast_enabled()
        assert not torch.is_autocast_enabled("mps")


def test_autocast_as_a_decorator() -> None:
    @torch.autocast("mps", dtype=torch.float16)
    def product(x: torch.Tensor) -> torch.dtype:
        return (x @ x).dtype

    with opcheck.emulate(torch="2.13", macos="15"):
        wrapped = torch.autocast("mps", dtype=torch.float16)(product.__wrapped__)
        assert wrapped(torch.ones(2, 2, device="mps")) is torch.float16


def test_torch_compile_knows_no_backend_mps() -> None:
    with opcheck.emulate(torch="2.13", macos="15"), pytest.raises(RuntimeError, match="Invalid backend: 'mps', see"):
        torch.compile(torch.nn.Linear(2, 2), backend="mps")
