"""A fix is made only where it cannot raise, and where it hides nothing that a person must know."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.versions import Target, Version
from opcheck.source.fixing import fix
from opcheck.source.scan_requirements import allowed_torch
from tests.source.reading import TARGET

_AUTOCAST = "import torch\nwith torch.autocast('cuda', enabled=False):\n    f(x)\n"
_SCALED = (
    "import torch\nscaler = torch.cuda.amp.GradScaler(2.0)\n"
    "with torch.autocast('cuda', dtype=torch.float16):\n    f(x)\n"
)
_MPS = '"mps" if torch.backends.mps.is_available() else "cuda"'


def _fixed(folder: Path, text: str, *, torch: Version = TARGET.torch, unsafe: bool = False) -> str:
    (folder / "a.py").write_text(text, encoding="utf-8")
    target = Target(torch=torch, macos=TARGET.macos)
    changes = fix([str(folder / "a.py")], target, unsafe=unsafe).changes
    return changes[0].after if changes else text


def test_autocast_of_mps_is_written_only_for_releases_that_have_it(tmp_path: Path) -> None:
    assert _MPS in _fixed(tmp_path, _AUTOCAST, torch=Version(2, 5))
    assert _fixed(tmp_path, _AUTOCAST, torch=Version(2, 4), unsafe=True) == _AUTOCAST


@pytest.mark.parametrize(
    ("name", "text", "safe", "unsafe"),
    [
        ("requirements.txt", "numpy\ntorch==2.3.1+cu121\n", False, False),
        ("requirements-dev.txt", "torch~=2.4.0\n", False, False),
        ("requirements.txt", "torch>=2.1\n", False, True),
        ("requirements.txt", "torch>=2.5\n", True, True),
        ("requirements.txt", "torchvision==0.10\n", True, True),
        ("pyproject.toml", '[project]\nname = "a"\ndependencies = ["torch<2.5"]\n', False, False),
    ],
)
def test_the_pins_of_the_project_count(tmp_path: Path, name: str, text: str, safe: bool, unsafe: bool) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    folder = tmp_path / "src"
    folder.mkdir()
    assert (_fixed(folder, _AUTOCAST) != _AUTOCAST) is safe
    assert (_fixed(folder, _AUTOCAST, unsafe=True) != _AUTOCAST) is unsafe


def test_pins_above_the_repository_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.1\n", encoding="utf-8")
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    assert allowed_torch(tmp_path / "repository") is None
    assert allowed_torch(tmp_path) == (Version(2, 1), Version(2, 1))


def test_float16_moves_with_its_scaler_or_not_at_all(tmp_path: Path) -> None:
    after = _fixed(tmp_path, _SCALED, unsafe=True)
    assert f"torch.amp.GradScaler({_MPS}, 2.0)" in after
    assert f"torch.autocast({_MPS}, dtype" in after
    assert _fixed(tmp_path, _SCALED, torch=Version(2, 7), unsafe=True) == _SCALED
    bfloat16 = _SCALED.replace("float16", "bfloat16")
    assert f"autocast({_MPS}" in _fixed(tmp_path, bfloat16, torch=Version(2, 7), unsafe=True)


def test_autocast_is_no_safe_fix_where_another_file_scales(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(_AUTOCAST.replace(", enabled=False", ""), encoding="utf-8")
    assert fix([str(tmp_path)], TARGET).changes != ()
    (tmp_path / "train.py").write_text("from torch.amp import GradScaler\n", encoding="utf-8")
    assert fix([str(tmp_path)], TARGET).changes == ()


REFUSALS = {
    "NCCL": "torch.distributed.init_process_group('nccl')",
    "an extension": "torch.utils.cpp_extension.CUDAExtension('a', ['a.cu'])",
    "a graph": "g = torch.cuda.CUDAGraph()",
}


@pytest.mark.parametrize("text", REFUSALS.values(), ids=REFUSALS)
def test_a_check_for_cuda_stays_where_the_program_fails_later(tmp_path: Path, text: str) -> None:
    check = "import torch\nimport torch.utils.cpp_extension\nassert torch.cuda.is_available()\n"
    assert _fixed(tmp_path, f"{check}{text}\n", unsafe=True) == f"{check}{text}\n"
    assert "or torch.backends.mps" in _fixed(tmp_path, f"{check}f()\n", unsafe=True)


FLOAT64 = {
    "a literal device": "x = torch.zeros(2, device='cuda', dtype=torch.float64)",
    "by a name": "d = 'cuda'\nx = torch.zeros(2, dtype=torch.double, device=d)",
    "by a device": "d = torch.device('cuda')\nx = torch.zeros(2, dtype=torch.float64, device=d)",
    "a choice": ("d = 'cuda' if torch.cuda.is_available() else 'cpu'\nx = torch.ones(2).to(d, torch.float64)"),
    "a chain": "x = torch.ones(2).double().cuda()",
    "a chain to a text": "x = torch.ones(2, dtype=torch.complex128).to('cuda')",
    "branches": (
        "if torch.cuda.is_available():\n    d = 'cuda'\nelse:\n    d = 'cpu'\n"
        "x = torch.ones(2, dtype=torch.float64, device=d)"
    ),
}


@pytest.mark.parametrize("text", FLOAT64.values(), ids=FLOAT64)
def test_no_fix_puts_float64_on_mps(tmp_path: Path, text: str) -> None:
    program = f"import torch\n{text}\n"
    assert _fixed(tmp_path, program, unsafe=True) == program
    narrow = program
    for name in ("float64", "complex128", "double"):
        narrow = narrow.replace(name, "float" if name == "double" else "float32")
    assert _fixed(tmp_path, narrow, unsafe=True) != narrow
