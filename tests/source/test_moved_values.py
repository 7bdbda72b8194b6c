"""float64 that a module, a loader or an object carries to MPS: torch on this CPU says which programs move it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.source.reading import report

_HEAD = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
x, f, device = np.random.rand(8), np.random.rand(8).astype(np.float32), torch.device("mps")
"""
_MODULE = """
class Part(nn.Module):
    def __init__(self, *given):
        super().__init__()
        {}
"""
_DATASET = """
class Rows(Dataset):
    def __init__(self):
        self.x, self.f = x, f
    def __len__(self):
        return 4
    def __getitem__(self, index):
        {}
loader = DataLoader(Rows(), batch_size=2{})
"""
#: What a module has, and what is done with it.
MODULES = [
    ('self.register_buffer("b", torch.from_numpy(x))', 'Part().to("mps")'),
    ('self.register_buffer("b", torch.from_numpy(f))', 'Part().to("mps")'),
    ('self.register_buffer("b", torch.from_numpy(x).float())', 'Part().to("mps")'),
    ('self.register_buffer("b", torch.tensor([1.0], dtype=torch.float64))', "m = Part()\nm.to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x))", "m = Part()\nm = m.to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x.astype(int)), requires_grad=False)", "Part().to(device)"),
    ("self.b = torch.tensor(x)", "Part().to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x))\n        self.half()", "Part().to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x))", "m = Part()\nm.float()\nm.to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x))", "m = Part()\nm.to(device, torch.float32)"),
    ("self.b = nn.Parameter(torch.tensor(x))", "m = Part()\nnn.Linear(1, 1).to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x))\n        self.to(device)", "Part()"),
    ("self.b = nn.Parameter(torch.tensor(x))", "nn.Sequential(Part()).to(device)"),
    ("self.b = nn.Parameter(torch.tensor(x))", "def move(m):\n    m.to(device)\nmove(Part())"),
    ("self.b = nn.Parameter(torch.tensor(x))", "def build():\n    return Part()\nbuild().to(device)"),
    ('self.register_buffer("b", torch.from_numpy(x))\n        self.b = self.b.float()', "Part().to(device)"),
    (
        'self.register_buffer("b", torch.from_numpy(x))',
        "class Whole(nn.Module):\n  def __init__(self):\n    super().__init__()\n    self.part = Part()\nWhole().to(device)",
    ),
]
#: What a dataset returns, further arguments of its loader, and the loop over it.
LOADERS = [
    ("return self.x[index]", "", "for b in loader:\n    b.to(device)"),
    ("return self.f[index]", "", "for b in loader:\n    b.to(device)"),
    ("return self.x[index]", "", "for b in loader:\n    b.float().to(device)"),
    ("return self.x[index]", ", collate_fn=lambda rows: torch.zeros(2)", "for b in loader:\n    b.to(device)"),
    ("return torch.FloatTensor(self.x), index", "", "for a, b in loader:\n    a.to(device)\n    b.to(device)"),
    ("return self.f[index], float(index)", "", "for i, (a, b) in enumerate(loader):\n    b.to(device)"),
    ("return self.f[index], float(index)", "", "for i, (a, b) in enumerate(loader):\n    a.to(device)"),
    ('return {"a": self.f[index], "b": np.float64(index)}', "", 'for b in loader:\n    b["b"].to(device)'),
    ('return {"a": self.f[index], "b": np.float64(index)}', "", 'for b in loader:\n    b["a"].to(device)'),
    ("return self.x[index], index", "", "def run(rows):\n    a, b = next(iter(rows))\n    a.to(device)\nrun(loader)"),
    ("return self.x[index], index", "", "def run(rows):\n    a, b = next(iter(rows))\n    b.to(device)\nrun(loader)"),
]
OTHERS = [
    "for a, b in DataLoader(TensorDataset(torch.tensor(x), torch.tensor(f))):\n    a.to(device)",
    "for a, b in DataLoader(TensorDataset(torch.tensor(x), torch.tensor(f))):\n    b.to(device)",
    "def two():\n    return DataLoader(TensorDataset(torch.tensor(x))), 1\nload, n = two()\nfor (a,) in load:\n    a.to(device)",
    "class A:\n    def __init__(self):\n        self.e = np.histogram(x)[1]\na = A()\ntorch.tensor(a.e).to(device)",
    "class A:\n    def __init__(self):\n        self.e = x\na = A()\na.e = f\ntorch.tensor(a.e).to(device)",
    "class A:\n    def __init__(self, e):\n        torch.tensor(e).to(device)\nA(x)",
    "class A:\n    def __init__(self, e):\n        torch.tensor(e).to(device)\nA(f)",
    "class A:\n    def __init__(self):\n        self.e, self.g = x, f\na = A()\ntorch.tensor(a.g).to(device)",
]
PROGRAMS = [
    *(_MODULE.format(body) + use for body, use in MODULES),
    *(_DATASET.format(body, options) + use for body, options, use in LOADERS),
    *OTHERS,
]


def _raises(program: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run a program on the CPU, whose tensors refuse to move to MPS in float64."""
    to = torch.Tensor.to

    def move(self: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        places = [each for each in (*args, *options.values()) if isinstance(each, (str, torch.device))]
        dtypes = [each for each in (*args, *options.values()) if isinstance(each, torch.dtype)]
        if "mps" not in map(str, places):
            return to(self, *args, **options)
        if (dtypes or [self.dtype])[0] == torch.float64:
            raise TypeError("the MPS framework doesn't support float64")
        return to(self, (dtypes or [self.dtype])[0])

    monkeypatch.setattr(torch.Tensor, "to", move)
    try:
        exec(compile(_HEAD + program, "program", "exec"), {})  # noqa: S102  (the programs above)
    except TypeError as error:
        assert "float64" in str(error)  # noqa: PT017  (most programs raise nothing)
        return True
    return False


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_value_that_goes_through_a_module_or_a_loader_is_named_where_it_raises(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = report(tmp_path, a=_HEAD + program + "\n").findings
    assert ("error" in {each.severity for each in findings}) == _raises(program, monkeypatch)


def test_about_half_of_the_programs_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    raising = [program for program in PROGRAMS if _raises(program, monkeypatch)]
    assert len(PROGRAMS) / 3 < len(raising) < len(PROGRAMS) * 2 / 3


@pytest.mark.parametrize(
    ("use", "severity"), [("", "note"), ("Part().to(choose())", "note"), ("Part().to(dev)", "warning")]
)
def test_a_module_that_does_not_move_to_mps_here_may_do_so_elsewhere(tmp_path: Path, use: str, severity: str) -> None:
    text = _HEAD + _MODULE.format(MODULES[0][0]) + f"dev = choose()\n{use}\n"
    assert [each.severity for each in report(tmp_path, a=text).findings] == [severity]


def test_the_finding_is_at_the_buffer_and_names_the_move(tmp_path: Path) -> None:
    text = _HEAD + _MODULE.format(MODULES[0][0]) + "Part().to('mps')\n"
    (finding,) = report(tmp_path, a=text).findings
    assert [place.text.partition("(")[0] for place in finding.locations] == ["self.register_buffer", "Part"]
