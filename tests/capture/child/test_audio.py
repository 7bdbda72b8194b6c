"""torchaudio, where its compiled part cannot load: imported, its operators recorded and judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.capture.child import extensions

# What torchaudio/_extension/__init__.py and its functions do, in one file.
LIBRARY = """
from pathlib import Path
import torch
for name in ("_torchaudio", "libtorchaudio"):
    torch.ops.load_library(Path(__file__).parent / "lib" / f"{name}.abi3.so")
assert torch.ops._torchaudio.cuda_version() is None
assert torch.ops._torchaudio.is_align_available()
"""

PROGRAM = """
from opcheck.capture.child.extensions import prepare_torchaudio
import torch
from tests.simulator.mac import recorded

def calls():
    ops = torch.ops.torchaudio
    logits = torch.zeros(2, 5, 4, 7, device="mps")
    numbers = torch.zeros(2, 3, device="mps", dtype=torch.int32)
    lengths = torch.zeros(2, device="mps", dtype=torch.int32)
    costs, gradients = ops.rnnt_loss_forward(logits, numbers, lengths, lengths, 0, -1.0, True)
    print(tuple(costs.shape), tuple(gradients.shape))
    paths, scores = ops.forced_align(logits[..., 0], numbers, lengths, lengths, 0)
    print(tuple(paths.shape), paths.dtype, tuple(scores.shape))
    out = torch.zeros(1, 1, 12, device="mps")
    print(ops._lfilter_core_loop(out[..., :10], torch.zeros(1, 3, device="mps"), out) is out)

stands_in = prepare_torchaudio()
assert prepare_torchaudio() == stands_in
if stands_in:
    import torchaudio
    for entry in recorded(calls).calls:
        if "torchaudio" in entry.call.route.name:
            print(entry.call.route.name, *(entry.call.inner or ()))
print(stands_in)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    package = tmp_path / "torchaudio"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY)
    for name in ("_torchaudio", "libtorchaudio"):
        (package / "lib" / f"{name}.abi3.so").write_text("for another machine")
    return tmp_path


def run(folder: Path) -> list[str]:
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_its_operators_are_declared_and_recorded(library: Path) -> None:
    assert run(library) == [
        "(2,) (2, 5, 4, 7)",
        "(2, 5) torch.int32 (2, 5, 4)",
        "True",
        "torchaudio::rnnt_loss_forward",
        "torchaudio::forced_align",
        "torchaudio::_lfilter_core_loop aten::as_strided aten::bmm aten::sub.Tensor",
        "True",
    ]


def test_nothing_is_declared_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_declared", {})
    monkeypatch.setattr(extensions, "package_folder", lambda _package: Path("/nonexistent"))
    assert not extensions.prepare_torchaudio()


def test_a_file_that_is_no_library_does_not_load(library: Path) -> None:
    assert not extensions.loads(library / "torchaudio" / "lib" / "libtorchaudio.abi3.so")
