"""Wheels and proposals that are damaged, for opcheck lists."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import strategies as st

from tests.fuzz.documents import TEXTS, bytes_mutated, yaml_mutated
from tests.fuzz.effort import fuzzed
from tests.fuzz.trial import Trial

pytest.importorskip("lief")

WHEEL = "torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl"
VISION = "torchvision-0.28.0-cp311-cp311-macosx_14_0_arm64.whl"
#: The head of a Mach-O library for arm64: one segment, and then nothing.
DYLIB = bytes.fromhex(
    "cffaedfe 0c000001 00000000 06000000 01000000 48000000 85001000 00000000"
    "19000000 48000000 5f5f5445 58540000 00000000 00000000 00000000 00000000"
    "00400000 00000000 00000000 00000000 00400000 00000000 05000000 05000000 00000000 00000000"
)
MEMBERS = {
    "torch/version.py": b"__version__ = '2.13.0'\ngit_version = 'abc'\n",
    "torch/lib/libtorch_cpu.dylib": DYLIB,
    "torchgen/__init__.py": b"",
    "torchgen/packaged/ATen/native/native_functions.yaml": b"- func: abs(Tensor self) -> Tensor\n",
    "torch/testing/_internal/common_mps.py": b"MPS_XFAILLIST = {'abs': None}\n",
    "torch/_ops.py": b"import torch\n@torch.library.impl('aten::abs', 'MPS')\ndef f(x): return x\n",
    "torch-2.13.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n",
}


def zipped(members: dict[str, bytes], *, compressed: bool = True) -> bytes:
    """A wheel with these members."""
    written = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(written, "w", kind) as wheel:
        for name, content in members.items():
            wheel.writestr(zipfile.ZipInfo(name, (2026, 7, 3, 1, 2, 4)), content, kind)
    return written.getvalue()


@st.composite
def members(draw: st.DrawFn) -> dict[str, bytes]:
    """The members of a wheel, some of which are missing, damaged, or somewhere else."""
    result = dict(MEMBERS)
    name = draw(st.sampled_from(sorted(result)))
    how = draw(st.sampled_from(("remove", "damage", "empty", "rename", "text")))
    content = result.pop(name)
    if how == "damage":
        result[name] = draw(bytes_mutated([content]))
    elif how == "empty":
        result[name] = b""
    elif how == "rename":
        outside = st.sampled_from(("../out.py", "/out.py", "torchgen/../../out.py", "torch/é.py"))
        result[draw(outside)] = content
    elif how == "text":
        result[name] = draw(TEXTS).encode("utf-8", errors="replace")
    return result


WHEELS = st.one_of(members().map(zipped), bytes_mutated([zipped(MEMBERS), zipped(MEMBERS, compressed=False)]))


@fuzzed(
    st.tuples(WHEELS, st.sampled_from((WHEEL, VISION))),
    quick=60,
    long=3000,
    kept=[
        (zipped({**MEMBERS, "torch/_ops.py": b"'MPS' 'x"}), WHEEL),
        (zipped({**MEMBERS, "torch/version.py": b"\xff"}), WHEEL),
    ],
)
def test_a_wheel_is_read(trial: Trial, content: tuple[bytes, str]) -> None:
    wheel, name = content
    arguments = ["lists", "build", name, "--directory", "lists", "--cache", "cache"]
    trial(arguments, {name: wheel})


PROPOSAL = b"""schema: 1
limitations:
- id: seen-sin-raises
  ops: ["aten::sin"]
  effect: raises
  torch: {since: "2.13", until: "2.14"}
  when: "observed with some inputs"
  error: {type: RuntimeError, text: "broken on MPS"}
  summary: It raised.
  evidence:
  - {kind: measured, torch: "2.13", where: "Apple M2, macOS 15.3 (24D81), torch 2.13"}
"""


@fuzzed(st.one_of(yaml_mutated([PROPOSAL]), bytes_mutated([PROPOSAL])), quick=12, long=300)
def test_a_proposal_is_reviewed(trial: Trial, content: bytes) -> None:
    trial(["lists", "merge", "new.yaml"], {"new.yaml": content})
