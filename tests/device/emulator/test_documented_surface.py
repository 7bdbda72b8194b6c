"""What torch.mps, torch.accelerator, autocast and torch.compile document does on the emulated Mac what it does there."""

from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.simulator.errors import NotSimulatedError


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


def test_a_stream_is_made_since_2_15() -> None:
    with (
        opcheck.emulate(torch="2.13", macos="15"),
        pytest.raises(RuntimeError, match="Backend doesn't support create a new Stream"),
    ):
        torch.Stream("mps")
    with opcheck.emulate(torch="2.15", macos="15"):
        assert isinstance(torch.Stream("mps"), torch.Stream)


def test_what_is_not_known_is_not_made_up() -> None:
    with opcheck.emulate(torch="2.13", macos="15"), pytest.raises(NotSimulatedError, match="not known"):
        torch.accelerator.memory_allocated()


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
