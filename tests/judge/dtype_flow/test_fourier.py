"""Transforms by release, macOS, dtype, norm and number of dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opcheck.capture.child.run import run
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.model.records import CallGroup, Trace
from tests.judge.dtype_flow import fourier
from tests.made import make_target

FILE = str(Path(fourier.__file__))

#: the kernel that each ends in
KERNELS = {
    "fft": "aten::_fft_r2c",
    "ifft": "aten::_fft_c2c",
    "rfft": "aten::_fft_r2c",
    "irfft": "aten::_fft_c2r",
    "hfft": "aten::_fft_c2r",
    "ihfft": "aten::_fft_r2c",
    "fft2": "aten::_fft_c2c",
    "ifft2": "aten::_fft_c2c",
    "rfft2": "aten::_fft_r2c",
    "irfft2": "aten::_fft_c2r",
    "fftn": "aten::_fft_c2c",
    "rfftn": "aten::_fft_r2c",
    "irfftn": "aten::_fft_c2r",
    "stft": "aten::_fft_r2c",
    "istft": "aten::_fft_c2r",
}

#: no kernel before 2.3; a kernel that asks for macOS 14 up to 2.8; a kernel.
ON = {
    ("2.1", "13"): ("fallback", "env"),
    ("2.4", "13"): ("unsupported", None),
    ("2.4", "14"): ("native", None),
    ("2.13", "15"): ("native", None),
    ("2.15", "15"): ("native", None),
}


def _capture(config: dict[str, Any], torch: str, macos: str) -> Trace:
    request = CaptureRequest(model=f"{FILE}:make", target=make_target(torch, macos), config=config)
    return run(request, lambda *_, **__: None).trace


def _kernel(config: dict[str, Any], torch: str, macos: str, lists: OpLists) -> CallGroup:
    target = Target(torch=Version.parse(torch), macos=Version.parse(macos))
    groups = report(_capture(config, torch, macos), target, lists).groups
    return next(group for group in groups if group.op == KERNELS[str(config["name"])])


@pytest.mark.parametrize("name", KERNELS)
def test_each_transform_ends_in_its_kernel(name: str, lists: OpLists) -> None:
    verdict = _kernel({"name": name}, "2.4", "13", lists).verdict
    assert verdict.status == "unsupported"
    assert verdict.prints == "FFT operations are only supported on MacOS 14+"


@pytest.mark.parametrize("name", ["fft", "irfft", "fft2", "stft", "istft"])
def test_by_release_and_macos(name: str, lists: OpLists) -> None:
    for (torch, macos), (status, kind) in ON.items():
        verdict = _kernel({"name": name}, torch, macos, lists).verdict
        assert (verdict.status, verdict.kind) == (status, kind), (torch, macos)
        assert verdict.evidence


@pytest.mark.parametrize("norm", ["forward", "backward", "ortho"])
def test_every_norm_is_the_same_call(norm: str, lists: OpLists) -> None:
    verdict = _kernel({"name": "rfft", "norm": norm}, "2.13", "15", lists).verdict
    assert verdict.status == "native"


def test_half_precision_is_refused_before_any_kernel(lists: OpLists) -> None:
    # SpectralOps.cpp, promote_type_fft: the CPU's refusal is the Mac's.
    trace = _capture({"name": "rfft", "dtype": "float16"}, "2.13", "15")
    assert not trace.problems
    (refused,) = (call for call in trace.calls if call.refusal)
    assert (refused.op, refused.refusal) == ("aten::fft_rfft", ("fft-half", "Unsupported dtype Half"))
    result = report(trace, Target(torch=Version(2, 13), macos=Version(15)), lists)
    assert result.headline == "fails"
    assert "Unsupported dtype Half" in {finding.prints for finding in result.findings}


@pytest.mark.parametrize(
    ("target", "prints"),
    [(("2.13", "15"), ""), (("2.15", "15"), "MPS FFT only supports transforming up to 4 dimensions")],
)
def test_more_than_four_dimensions(target: tuple[str, str], prints: str, lists: OpLists) -> None:
    four = _kernel({"name": "rfftn", "dims": 4}, *target, lists).verdict
    five = _kernel({"name": "rfftn", "dims": 5}, *target, lists).verdict
    assert four.status == "native"
    assert five.status == "unsupported"
    assert five.prints.startswith(prints)
