"""What a Mac does not come to is not named; what it may come to is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.reading import scan_text

GUARDED = {
    "if": "if torch.cuda.is_available():\n    x.cuda()",
    "else": "if not torch.cuda.is_available():\n    pass\nelse:\n    x.cuda()",
    "expression": 'd = "cuda" if torch.cuda.is_available() else "cpu"\nx.to(d)',
    "and": "y = torch.cuda.is_available() and x.cuda()",
    "or": "y = not torch.cuda.is_available() or x.cuda()",
    "name": "use = torch.cuda.is_available() and not args.cpu\nif use:\n    x.cuda()",
    "flag by its name": "if args.use_cuda:\n    x.cuda()",
    "flag against it": "if not args.no_cuda:\n    x.cuda()",
    "device type": 'if device.type == "cuda":\n    x.cuda()',
    "other branch of mps": 'if device.type == "mps":\n    pass\nelse:\n    x.cuda()',
    "device in a set": 'if device.type in {"cpu", "mps"}:\n    pass\nelse:\n    x.cuda()',
    "text of a device": 'if "cuda" in str(device):\n    x.cuda()',
    "starts with": 'if device.startswith("cuda"):\n    x.cuda()',
    "is_cuda": "if x.is_cuda:\n    y.cuda()",
    "devices counted": "if torch.cuda.device_count() > 1:\n    x.cuda()",
    "platform": 'import sys\nif sys.platform == "linux":\n    x.cuda()',
    "alias of torch": "import torch as t\nif t.cuda.is_available():\n    x.cuda()",
    "alias of cuda": "from torch import cuda\nif cuda.is_available():\n    x.cuda()",
    "nccl": 'if torch.distributed.get_backend() == "nccl":\n    x.cuda()',
    "flag of mps": "if args.use_mps:\n    pass\nelse:\n    x.cuda()",
    "flag against mps": "if args.no_mps:\n    x.cuda()",
    "function of mps": "def f(x):\n    if mps_mode():\n        return x\n    return x.cuda()",
    "member of mps": "if state == Backend.MPS:\n    pass\nelse:\n    x.cuda()",
    "member of cuda": "if state == Backend.CUDA:\n    x.cuda()",
    "attribute of a device": (
        'if hasattr(d, "type") and d.type == "mps":\n    pass\nelse:\n    x.cuda()'
    ),
    "device with a name": 'gpu = torch.device("cuda")\nif d == gpu:\n    x.cuda()',
    "each device": "for i in range(torch.cuda.device_count()):\n    x.cuda(i)",
    "each device in a list": "y = [x.cuda(i) for i in range(torch.cuda.device_count())]",
    "method cuda": "def cuda(self):\n    self.d = torch.cuda.current_device()",
    "early return": "def f(x):\n    if not torch.cuda.is_available():\n        return x\n    return x.cuda()",
    "early continue": "for x in y:\n    if x.device.type != 'cuda':\n        continue\n    x.cuda()",
    "both assigned": 'd = "cpu"\nif torch.cuda.is_available():\n    d = "cuda"\nx.to(d)',
    "attribute": (
        "class C:\n    def a(self):\n        self.d = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "    def b(self):\n        x.to(self.d)"
    ),
    "private function": (
        "def _f(x):\n    x.cuda()\nif torch.cuda.is_available():\n    _f(x)"
    ),
    "function handed on": (
        "def _f(x):\n    x.cuda()\ndef _g():\n    spawn(_f)\nif torch.cuda.is_available():\n    _g()"
    ),
    "release": "if torch.__version__ < '2.0':\n    x.cuda()",
    "another device": "if d == 'cuda' or d == 'npu':\n    x.cuda()",
    "device with a number": "if d.startswith('cuda:'):\n    x.cuda()",
    "skipped test": (
        "import unittest\n@unittest.skipIf(not torch.cuda.is_available(), 'x')\ndef test(x):\n    x.cuda()"
    ),
    "skip in a test": (
        "import pytest\ndef test(x):\n    if not torch.cuda.is_available():\n        pytest.skip('x')\n    x.cuda()"
    ),
    "decorator by its name": "@require_torch_gpu\ndef test(x):\n    x.cuda()",
    "tried": "try:\n    x.cuda()\nexcept AssertionError:\n    pass",
    "import tried": "try:\n    import apex\nexcept ImportError:\n    apex = None",
    "what an import left": (
        "try:\n    import apex\n    has = True\nexcept ImportError:\n    has = False\nif has:\n    x.cuda()"
    ),
    "import under a condition": "if find_spec('apex'):\n    import apex",
}  # fmt: skip


#: They name the guard itself, which knows no MPS.
ABOUT_GUARDS = {"OC222", "OC223", "OC226"}


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED)
def test_a_guard_keeps_a_line_silent(tmp_path: Path, text: str) -> None:
    assert [code for code, _ in scan_text(tmp_path, text) if code not in ABOUT_GUARDS] == []


OPEN = {
    "mps": ('if device.type == "mps":\n    x.cuda()', 2),
    "not cuda": ("if not torch.cuda.is_available():\n    x.cuda()", 2),
    "unknown flag": ("if args.fast:\n    x.cuda()", 2),
    "other flag with mps": ("if args.skip_mps_tests:\n    pass\nelse:\n    x.cuda()", 4),
    "other attribute": ('if hasattr(d, "name") and d.type == "mps":\n    pass\nelse:\n    x.cuda()', 4),
    "some numbers": ("for i in range(len(y)):\n    x.cuda(i)", 2),
    "what a comprehension goes over": ("y = [i for i in x.cuda() if torch.cuda.is_available()]", 1),
    "else of cuda": ("if torch.cuda.is_available():\n    pass\nelse:\n    x.cuda()", 4),
    "known constant": ("use_cuda = True\nif use_cuda:\n    x.cuda()", 3),
    "public function": ("def f(x):\n    x.cuda()\nif torch.cuda.is_available():\n    f(x)", 2),
    "called once more": ("def _f(x):\n    x.cuda()\nif x.is_cuda:\n    _f(x)\n_f(x)", 2),
    "handed on": ("def _f(x):\n    x.cuda()\nspawn(_f)", 2),
    "raised again": ("try:\n    x.cuda()\nexcept Exception:\n    raise", 2),
    "traceback printed": ("try:\n    x.cuda()\nexcept Exception:\n    traceback.print_exc()", 2),
    "long receiver": ("(\n    x\n    .cuda()\n)", 3),
    "other error": ("try:\n    x.cuda()\nexcept ValueError:\n    pass", 2),
    "return of another guard": ("def f(x):\n    if x is None:\n        return\n    x.cuda()", 4),
    "text given to a parameter": ("def f(use):\n    if use:\n        x.cuda()", 3),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line"), OPEN.values(), ids=OPEN)
def test_what_is_no_guard_leaves_the_line_open(tmp_path: Path, text: str, line: int) -> None:
    assert [hit for hit in scan_text(tmp_path, text) if hit[0] not in ABOUT_GUARDS] == [("OC201", line)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('d = "cuda"\nx.to(d)\ny.to(d)', [("OC202", 1)]),
        ('KIND = "cuda"\nd = KIND\ntorch.device(d)', [("OC202", 1)]),
        ('def f():\n    d = "cuda"\n    x.to(d)', [("OC202", 2)]),
        ('class C:\n    def a(self):\n        self.d = "cuda"\n    def b(self):\n        x.to(self.d)', [("OC202", 3)]),
        ('d = args.device or "cuda"\nx.to(d)', [("OC202", 1)]),
        ('def f(d):\n    x.to(d)\nd = "cuda"', []),
        ('a, b = "cuda", 1\nx.to(a)', [("OC202", 1)]),
        ('d = "cuda"\nx.to(d)\nif "cuda" in d:\n    x.pin_memory()', [("OC202", 1)]),
        ("n = n + 1\nx.to(n)", []),
        ("from torch.cuda.amp import autocast as cast\ncast()", [("OC207", 2)]),
        ("cast = torch.cuda.amp.autocast\ncast()", [("OC207", 2)]),
        ('from torch import *\ndevice("cuda")', [("OC202", 2)]),
        ('from torch import *\ndef device(x): pass\ndevice("cuda")', []),
        ('from torch import *\nfrom torch.nn import *\ndevice("cuda")', [("OC202", 3)]),
        ('from torch import *\nfrom .layers import *\ndevice("cuda")', [("OC202", 3)]),
        ("from torch import *\nx = zeros(3, dtype=float64)", [("OC210", 2)]),
        ("from torch import *\nfrom numpy import *\nx = zeros(3, dtype=float64)", []),
        ("from torch import *\nx = zeros(3, dtype=float32)", []),
        ('from torch import device as dev\ndev("cuda")', [("OC202", 2)]),
        ('d = torch.device("cuda")\nd == x.device\nx.to(d)', [("OC202", 1)]),
        ("t = torch.float64\nx.to(t)", [("OC210", 2)]),
    ],
)  # fmt: skip
def test_names_are_followed_within_the_file(tmp_path: Path, text: str, expected: list[tuple[str, int]]) -> None:
    assert [hit for hit in scan_text(tmp_path, text) if hit[0] not in ABOUT_GUARDS] == expected


def test_the_variable_may_be_set_before_torch(tmp_path: Path) -> None:
    name = "PYTORCH_ENABLE_MPS_FALLBACK"
    late = f'os.environ["{name}"] = "1"'
    assert scan_text(tmp_path, late) == [("OC216", 1)]
    (tmp_path / "program.py").write_text(f"import os\n{late}\nimport torch\n", encoding="utf-8")
    from tests.source.reading import report

    assert report(tmp_path).findings == ()
