"""What a program and its libraries read of the machine, inside of a simulated Mac and after it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator import target_reads
from opcheck.simulator.visible.surface import mps_backend

LIBRARY = "/usr/lib/python3/site-packages/some_library/device.py"
TARGET = Target(torch=Version(2, 13), macos=Version(15, 4))


def asked_by(file: str, expression: str) -> Any:
    """The value of an expression in a module of that file."""
    module = types.ModuleType("asks")
    text = f"import os, platform, subprocess, sys, sysconfig, torch\ndef ask():\n    return {expression}\n"
    exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - a line of this test's
    return module.ask()


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("platform.processor()", "arm"),
        ("platform.machine()", "arm64"),
        ("platform.system()", "Darwin"),
        ("platform.mac_ver()[0]", "15.4"),
        ("platform.mac_ver()[2]", "arm64"),
        ("platform.release()", "24.4.0"),
        ("platform.uname().system", "Darwin"),
        ("platform.uname().processor", "arm"),
        ("tuple(platform.uname())[4:]", ("arm64", "arm")),
        ("os.uname().sysname", "Darwin"),
        ("os.uname().machine", "arm64"),
        ("platform.platform(terse=True)", "macOS-15.4"),
        ("torch.backends.mps.get_name()", "Apple M1"),
        ("torch.backends.mps.get_core_count()", 8),
        ("torch.backends.cuda.is_built()", False),
        ("torch.version.cuda", None),
    ],
)
def test_the_program_gets_the_answers_of_a_mac(expression: str, answer: object) -> None:
    with mps_backend(TARGET):
        assert asked_by(__file__, expression) == answer


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a build with CUDA answers on a machine without a GPU."""
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92000)
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_90"])
    monkeypatch.setattr(torch.cuda, "Event", object)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda _name: 0)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_NCCL_AVAILABLE", True)
    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))


@pytest.mark.usefixtures("cuda_build")
@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("torch.backends.cudnn.is_available()", False),
        ("torch.backends.cudnn.version()", None),
        ("torch.cuda._is_compiled()", False),
        ("torch.cuda.get_arch_list()", []),
        ("torch.distributed.is_nccl_available()", False),
    ],
)
def test_a_build_with_cuda_answers_as_a_mac_does(expression: str, answer: object) -> None:
    assert asked_by(__file__, expression) != answer
    with mps_backend(TARGET):
        assert asked_by(__file__, expression) == answer


@pytest.mark.usefixtures("cuda_build")
@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("torch.cuda.Event()", "dummy base class Event"),
        ("torch.cuda.CUDAGraph()", "dummy base class CUDAGraph"),
        ("torch.cuda.nvtx.range_push('step')", "NVTX functions not installed"),
        ("__import__('triton')", "triton"),
    ],
)
def test_a_build_with_cuda_raises_as_a_mac_does(expression: str, error: str) -> None:
    asked_by(__file__, expression)
    with mps_backend(TARGET), pytest.raises((RuntimeError, ImportError), match=error):
        asked_by(__file__, expression)
    asked_by(__file__, expression)


def test_torch_asks_for_triton_again_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._triton import has_triton_package

    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))
    has_triton_package.cache_clear()
    assert has_triton_package()
    with mps_backend(TARGET):
        assert not has_triton_package()
    assert has_triton_package()


def test_a_block_within_another_leaves_triton_hidden_until_the_outer_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    with mps_backend(TARGET):
        with mps_backend(TARGET):
            assert sys.modules["triton"] is None
        assert sys.modules["triton"] is None
    assert "triton" not in sys.modules


@pytest.mark.parametrize("name", ["processor", "mac_ver"])
def test_a_library_can_find_out_that_it_is_on_apple_silicon(name: str) -> None:
    with mps_backend(TARGET):
        assert asked_by(LIBRARY, f"platform.{name}()") == asked_by(__file__, f"platform.{name}()")


@pytest.mark.parametrize(
    "expression",
    [
        "platform.system()",
        "platform.machine()",
        "platform.platform()",
        "tuple(os.uname())",
        "sys.platform",
        "sysconfig.get_platform()",
    ],
)
def test_what_libraries_choose_native_files_by_is_this_machines(expression: str) -> None:
    before = asked_by(LIBRARY, expression)
    with mps_backend(TARGET):
        assert asked_by(LIBRARY, expression) == before


def test_the_standard_library_finds_its_own_machine() -> None:
    import sysconfig

    before = sysconfig.get_platform(), sys.platform, os.name
    with mps_backend(TARGET):
        assert (sysconfig.get_platform(), sys.platform, os.name) == before
        done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, check=True)
    assert done.stdout == b"1\n"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["sysctl", "-n", "machdep.cpu.brand_string"], "Apple M1\n"),
        (["/usr/sbin/sysctl", "-n", "hw.memsize"], "17179869184\n"),
        (["sysctl", "hw.memsize", "hw.ncpu"], "hw.memsize: 17179869184\nhw.ncpu: 8\n"),
        (["sw_vers", "-productVersion"], "15.4\n"),
        (["uname", "-m"], "arm64\n"),
    ],
)
def test_programs_that_tell_of_the_machine(command: list[str], text: str) -> None:
    with mps_backend(TARGET):
        assert subprocess.check_output(command, text=True) == text
        line = " ".join(command)
        assert subprocess.check_output(line, shell=True, text=True) == text  # noqa: S602
        with os.popen(line) as pipe:  # noqa: S605
            assert pipe.read() == text


def test_other_programs_are_started_as_they_are() -> None:
    with mps_backend(TARGET):
        assert subprocess.check_output(["echo", "hw.memsize"], text=True) == "hw.memsize\n"  # noqa: S607
        assert subprocess.check_output("echo a | tr a b", shell=True, text=True) == "b\n"  # noqa: S602, S607


def test_afterwards_all_is_as_before() -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no os.uname")

    def state() -> tuple[Callable[..., Any], ...]:
        return platform.processor, platform.uname, os.uname, subprocess.Popen.__init__

    before = state()
    with mps_backend(TARGET):
        assert state() != before
    assert state() == before
    assert platform.system() != "Darwin" or sys.platform == "darwin"


def test_the_version_of_macos_is_a_question_and_the_processor_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_reads.READS, "answers", {})
    older = Target(torch=TARGET.torch, macos=Version(14))
    with mps_backend(TARGET):
        assert asked_by(__file__, "platform.processor() + platform.system()") == "armDarwin"
        assert target_reads.READS.fits(older)
        asked_by(__file__, "platform.mac_ver()")
        assert not target_reads.READS.fits(older)
        assert target_reads.READS.fits(TARGET)


def test_the_torch_of_a_mac_knows_no_cuda() -> None:
    with mps_backend(TARGET):
        assert torch.version.cuda is None
        assert not torch.cuda.is_available()
