"""Four programs for CUDA: ``scan --fix --unsafe-fixes``, at most two edits by hand, then they run on an emulated Mac."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from opcheck.source.engine import scan
from opcheck.source.fixing import fix
from tests.source.reading import TARGET

_PROGRAMS = Path(__file__).with_name("programs")


class _Ported(NamedTuple):
    #: the rules that the fixed program still has findings of
    left: list[str]
    #: what a person writes: before, after
    edits: tuple[tuple[str, str], ...] = ()


#: What the fix writes below the imports.
_HELPER = """

def get_device() -> str:
    \"\"\"Return the first that the machine has of "cuda", "mps" and "cpu".\"\"\"
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


"""

PORTED = {
    "amp": _Ported(["OC215"]),
    "ddp": _Ported(["OC205", "OC208", "OC215", "OC223", "OC223"]),
    "nvml": _Ported(
        ["OC205", "OC205", "OC214"],
        (
            (
                (
                    f"import pynvml\nimport torch\n{_HELPER}"
                    "pynvml.nvmlInit()\nhandle = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
                ),
                f"import torch\n{_HELPER}",
            ),
            (
                (
                    'print("used", pynvml.nvmlDeviceGetMemoryInfo(handle).used)\n'
                    "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    y = model(x)\ngraph.replay()\n"
                ),
                'print("used", torch.mps.current_allocated_memory())\ny = model(x)\n',
            ),
        ),
    ),
    "flash": _Ported(
        ["OC210", "OC210", "OC214"],
        (
            (
                "from flash_attn import flash_attn_func\n",
                (
                    "\n\ndef flash_attn_func(q, k, v, causal):\n"
                    "    q, k, v = (x.transpose(1, 2) for x in (q, k, v))\n"
                    "    attention = torch.nn.functional.scaled_dot_product_attention\n"
                    "    return attention(q, k, v, is_causal=causal).transpose(1, 2)\n"
                ),
            ),
            (
                "torch.polar(torch.ones_like(angles), angles).to(device)",
                "torch.polar(torch.ones_like(angles), angles).to(torch.complex64).to(device)",
            ),
        ),
    ),
}


def _port(folder: Path, name: str) -> Path:
    """Fix a copy of a program."""
    path = folder / f"{name}.py"
    shutil.copy(_PROGRAMS / path.name, path)
    (change,) = fix([str(path)], TARGET, unsafe=True).changes
    path.write_bytes(change.contents()[1])
    return path


@pytest.mark.parametrize("name", PORTED)
def test_the_fixed_program_keeps_its_other_findings(tmp_path: Path, name: str) -> None:
    findings = scan([str(_port(tmp_path, name))], TARGET).findings
    left = sorted(finding.rule for finding in findings)
    assert left == PORTED[name].left


@pytest.mark.slow
@pytest.mark.parametrize("name", PORTED)
def test_the_ported_program_runs_on_the_gpu_of_an_emulated_mac(tmp_path: Path, name: str) -> None:
    path = _port(tmp_path, name)
    text = path.read_text(encoding="utf-8")
    assert len(PORTED[name].edits) <= 2
    for before, after in PORTED[name].edits:
        assert text.count(before) == 1
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "opcheck", "run", "--fail-on", "fallback", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "runs natively" in result.stderr
    assert "mps" in result.stdout
