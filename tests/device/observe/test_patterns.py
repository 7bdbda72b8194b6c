"""Lines in the formats that MPSProfiler.mm and MPSAllocator.mm have, made by hand from the source."""

from __future__ import annotations

import pytest

from opcheck.device.observe.log_parsing import profile_event


@pytest.mark.parametrize(
    ("line", "kind", "numbers"),
    [
        (
            "CPU Fallback::aten::isin:MPS:Float[2, 3]:MPS:Long[4] (id=1, run=3, CopyOverhead=56 bytes, cpu=0.120 ms)",
            "fallback_run",
            {"id": 1, "run": 3, "bytes": 56, "cpu_ms": 0.12},
        ),
        (
            "CPU Fallback::aten::x:MPS(buf#12:3):Float[2]:undefined (id=2, run=1, CopyOverhead=1.50 KiB)",
            "fallback_run",
            {"id": 2, "run": 1, "bytes": 1536},
        ),
        (
            "MemCopy: CPU:0x1234 --> MPS:Float[2] (len=8 bytes, gpu=0.010 ms, cpu=0.020 ms)",
            "copy",
            {"bytes": 8, "gpu_ms": 0.01, "cpu_ms": 0.02},
        ),
        (
            "  1      12        0.120           1.440          1.50 MiB      aten::linalg_eig",
            "fallback_total",
            {"id": 1, "runs": 12, "mean_ms": 0.12, "cpu_ms": 1.44, "bytes": 1572864},
        ),
        (
            "  G1      2          0.003           0.120          0.240       add_out_mps::f32[2]",
            "operation_total",
            {"id": 1, "runs": 2, "gpu_ms": 0.24},
        ),
        (
            " MPS to CPU       3          12 bytes           0.000            0.100           2          66.67 %          3         0    ",
            "copy_total",
            {"runs": 3, "bytes": 12, "scalars": 2},
        ),
        ("There are no CPU Fallbacks logged for profiling", "fallback_total", {}),
        (
            "Allocated private buffer #4 of size 1.00 MB at 0x1 from heap #2 (requested: 1.00 MB, heap: 7.00 MB, total: 8.00 MB)",
            "allocator",
            {"id": 4, "bytes": 1 << 20},
        ),
        ("Reusing shared scalar buffer #1 of size 256 bytes at 0x1 (requested: 4 bytes, use#: 2)", "allocator", {"bytes": 256}),
        ("Released heap #3 of size 32.00 MB (current allocated: 0 bytes)", "allocator", {"id": 3}),
    ],
)  # fmt: skip
def test_a_line_of_the_profiler(line: str, kind: str, numbers: dict[str, float]) -> None:
    seen = profile_event(line)
    assert seen is not None
    assert seen.kind == kind
    assert {name: seen.numbers[name] for name in numbers} == numbers


def test_the_unified_log_holds_the_same_messages() -> None:
    line = (
        "2026-09-01 10:00:02.123456+0200 0x1a2b Signpost 0x0 812 0 Python: (libtorch_cpu.dylib) "
        "[PyTorchMPS:Intervals] [spid 0x5, process, begin] PyTorchCPUFallbackIntervals "
        "CPU Fallback::aten::isin:MPS:Float[2] (id=1, run=1, CopyOverhead=8 bytes)"
    )
    seen = profile_event(line)
    assert seen is not None
    assert (seen.kind, seen.op) == ("fallback_run", "aten::isin")


@pytest.mark.parametrize(
    "line",
    ["aten::add is fast", "12 of 13 tests passed", "Copy: a --> b", "1 2 3.000 4.000 5 bytes nothing"],
)  # fmt: skip
def test_other_lines_are_not(line: str) -> None:
    assert profile_event(line) is None
