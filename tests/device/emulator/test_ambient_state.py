"""What a call comes to may depend on the state of the process: a judgement that was kept under another is not used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import opcheck

_FLOAT64 = "MPS framework doesn't support float64"


@pytest.fixture(autouse=True)
def default_dtype_restored() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "factory",
    [
        lambda: torch.ones(3, device="mps"),
        lambda: torch.empty(2, 2, device="mps"),
        lambda: torch.full((3,), 1.5, device="mps"),
        lambda: torch.linspace(0, 1, 4, device="mps"),
        lambda: torch.arange(0, 1, 0.25, device="mps"),
        lambda: torch.randn(3, device="mps"),
        lambda: torch.eye(2, device="mps"),
    ],
    ids=["ones", "empty", "full", "linspace", "arange", "randn", "eye"],
)
def test_a_factory_that_ran_in_float32_raises_in_float64_and_runs_again_in_float32(
    factory: Callable[[], torch.Tensor],
) -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        assert factory().dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        with pytest.raises(TypeError, match=_FLOAT64):
            factory()
        torch.set_default_dtype(torch.float32)
        assert factory().dtype is torch.float32


@pytest.mark.parametrize(
    "divide", [lambda x: torch.div(x, 2), lambda x: torch.mul(x, 0.5)], ids=["true division", "a float beside integers"]
)
def test_an_integers_result_follows_the_default_dtype(divide: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        integers = torch.arange(4, device="mps")
        assert divide(integers).dtype is torch.float32
        torch.set_default_dtype(torch.float16)
        assert divide(integers).dtype is torch.float16
        torch.set_default_dtype(torch.float64)
        with pytest.raises(TypeError, match=_FLOAT64):
            divide(integers)


def test_shapes_without_values_follow_the_default_dtype() -> None:
    class Divides(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x / 2
            torch.set_default_dtype(torch.float16)
            second = x / 2
            torch.set_default_dtype(torch.float32)
            assert first.dtype is torch.float32
            assert second.dtype is torch.float16
            return second

    report = opcheck.audit(Divides(), (torch.zeros(200, 200, dtype=torch.int64),), torch="2.13")
    assert report.headline == "runs natively"
    assert "float16" in {name for group in report.groups for name in group.dtypes}


_MODE = "print(torch.tensor([1., 1., 2.], device='mps').mode().values.item())\n"
_SET = "import os\nos.environ['PYTORCH_ENABLE_MPS_FALLBACK'] = '{}'\n"


def run(tmp_path: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "opcheck", "run", "--torch=2.13", *flags, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize(
    ("text", "flags", "code"),
    [
        (_SET.format(1) + "import torch\n" + _MODE, (), 0),
        (_SET.format(1) + "from torch import nn\nimport torch\n" + _MODE, (), 0),
        ("import torch\n" + _SET.format(1) + _MODE, (), 1),
        (_SET.format(0) + "import torch\n" + _MODE, ("--fallback",), 1),
        ("import torch\n" + _SET.format(0) + _MODE, ("--fallback",), 0),
    ],
    ids=["before", "before, from", "too late", "taken back", "taken back too late"],
)
def test_the_fallback_variable_holds_as_it_was_at_the_first_import_of_torch(
    tmp_path: Path, text: str, flags: tuple[str, ...], code: int
) -> None:
    ended = run(tmp_path, text, *flags)
    assert ended.returncode == code, ended.stderr
    assert ("1.0" in ended.stdout) is (code == 0)
    assert ("NotImplementedError" in ended.stderr) is (code == 1)
