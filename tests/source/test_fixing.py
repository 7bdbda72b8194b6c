"""What ``--fix`` changes: the same on CUDA and without a GPU as before, MPS on a Mac, and nothing twice."""

from __future__ import annotations

import functools
import json
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

from opcheck.source import edits
from opcheck.source.edits import Edit, apply
from opcheck.source.engine import scan
from opcheck.source.fixing import FileChange, Fixed, fix
from tests.source.reading import TARGET


def fixed(folder: Path, files: dict[str, str], *, unsafe: bool = False) -> dict[str, str]:
    """The changed files of a project, by name."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    result = fix([str(folder)], TARGET, unsafe=unsafe)
    _write(result)
    again = fix([str(folder)], TARGET, unsafe=unsafe)
    assert again.changes == (), "a second run changes nothing"
    return {change.path.relative_to(folder).as_posix(): change.after for change in result.changes}


def _write(result: Fixed) -> None:
    for change in result.changes:
        change.path.write_bytes(change.contents()[1])


@pytest.fixture(autouse=True)
def _long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of any length: what a fix writes without a helper is tested here, its length below."""
    monkeypatch.setattr(edits, "LONGEST_LINE", 1000)


MPS = "torch.backends.mps.is_available()"
CUDA = "torch.cuda.is_available()"

#: (before, after)
SAFE = {
    "ternary": (f"d = 'cuda' if {CUDA} else 'cpu'  # d", f"d = 'cuda' if {CUDA} else 'mps' if {MPS} else 'cpu'  # d"),
    "torch.device": (
        f'd = torch.device("cuda:0" if {CUDA} else "cpu")',
        f'd = torch.device("cuda:0" if {CUDA} else "mps" if {MPS} else "cpu")',
    ),
    "made in each branch": (
        f'd = torch.device("cuda") if {CUDA} else torch.device("cpu")',
        f'd = torch.device("cuda") if {CUDA} else torch.device("mps") if {MPS} else torch.device("cpu")',
    ),
    "flag": (
        f"use = {CUDA} and not args.cpu\nd = 'cuda' if use else 'cpu'",
        f"use = {CUDA} and not args.cpu\nd = 'cuda' if use else 'mps' if {MPS} and not args.cpu else 'cpu'",
    ),
    "if": (
        f"if {CUDA}:\n    d = 'cuda'\nelse:  # no GPU\n    d = 'cpu'",
        f"if {CUDA}:\n    d = 'cuda'\nelif {MPS}:\n    d = \"mps\"\nelse:  # no GPU\n    d = 'cpu'",
    ),
    "if without else": (
        f"d = 'cpu'\nif {CUDA}:\n\td = 'cuda'  # fast\nf(d)",
        f"d = 'cpu'\nif {CUDA}:\n\td = 'cuda'  # fast\nelif {MPS}:\n\td = \"mps\"\nf(d)",
    ),
    "returned": (
        f"def f():\n    if {CUDA}:\n        return 'cuda'\n    return 'cpu'",
        f"def f():\n    if {CUDA}:\n        return 'cuda'\n    elif {MPS}:\n        return \"mps\"\n    return 'cpu'",
    ),
    "a part of a device": (
        'd = "cuda" if "cuda" in device else "cpu"',
        'd = "cuda" if "cuda" in device else "mps" if "mps" in device else "cpu"',
    ),
    "is_cuda": ("d = 'cpu'\nif x.is_cuda:\n    d = 'cuda'\n", "d = x.device.type\n"),
    "is_cuda in a ternary": ("d = torch.device('cuda' if x.is_cuda else 'cpu')", "d = torch.device(x.device.type)"),
    "guarded move": (
        f"device = 'cuda' if {CUDA} else 'cpu'\nif {CUDA}:\n    m = m.cuda()",
        f"device = 'cuda' if {CUDA} else 'mps' if {MPS} else 'cpu'\nm = m.to(device)",
    ),
    "move": (
        f"device = 'cuda' if {CUDA} else 'cpu'\nm = (a + b).cuda(non_blocking=True)",
        f"device = 'cuda' if {CUDA} else 'mps' if {MPS} else 'cpu'\nm = (a + b).to(device, non_blocking=True)",
    ),
    "memory": (
        "for i in x:\n    torch.cuda.empty_cache()  # now",
        f"for i in x:\n    (torch.mps if {MPS} else torch.cuda).empty_cache()  # now",
    ),
    "guarded memory": (
        f"if {CUDA}:\n    torch.cuda.synchronize()",
        f"if {CUDA}:\n    torch.cuda.synchronize()\nelif {MPS}:\n    torch.mps.synchronize()",
    ),
    "event": (
        "start, end = [torch.cuda.Event(enable_timing=True) for _ in 'ab']",
        f"start, end = [(torch.mps if {MPS} else torch.cuda).Event(enable_timing=True) for _ in 'ab']",
    ),
    "autocast": (
        "with torch.autocast('cuda', dtype=t):\n    f(x)",
        f'with torch.autocast("mps" if {MPS} else "cuda", dtype=t):\n    f(x)',
    ),
    "old autocast": (
        "with torch.cuda.amp.autocast(False):\n    f(x)",
        f'with torch.autocast("mps" if {MPS} else "cuda", enabled=False):\n    f(x)',
    ),
    "type": ("y = x.type(\n    z.type()\n)", "y = x.to(z)"),
    "pinned": ("f(pin_memory=True)", f"f(pin_memory={CUDA})"),
    "choices": (
        "p.add_argument('--where', choices=['cuda', 'cpu'])\nd = torch.device(a.where)",
        "p.add_argument('--where', choices=['cuda', 'cpu', 'mps'])\nd = torch.device(a.where)",
    ),
    "variable": (
        'import os\nos.environ["PYTOCH_ENABLE_MPS_FALLBACK"] = "1"',
        'import os\nos.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"',
    ),
    "unicode": (f"s = 'ä'; d = 'cuda' if {CUDA} else 'cpu'", f"s = 'ä'; d = 'cuda' if {CUDA} else 'mps' if {MPS} else 'cpu'"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), SAFE.values(), ids=SAFE)
def test_a_safe_fix(tmp_path: Path, before: str, after: str) -> None:
    changed = fixed(tmp_path, {"a.py": f"import torch\n{before}"})
    assert changed == {"a.py": f"import torch\n{after}"}


KEPT = {
    "MPS is known": f"d = 'mps' if m else 'cuda' if {CUDA} else 'cpu'",
    "another part of the condition": f"d = 'cuda' if {CUDA} and f() else 'cpu'",
    "more in a branch": f"if {CUDA}:\n    d = 'cuda'\n    n = 1\nelse:\n    d = 'cpu'",
    "method cuda": "class C:\n    def cuda(self):\n        self.x = self.x.cuda()",
    "unguarded move": "x = x.cuda()",
    "default": "def f(device='cuda'): pass",
    "load": "torch.load('f')",
    "parameter": "def f(x, device):\n    return x.cuda()",
    "device that is not CUDA's": "device = 'cpu'\nx = x.cuda()",
    "decorator": "@torch.autocast('cuda')\ndef f(): pass",
    "scaled": "s = torch.cuda.amp.GradScaler()\nwith torch.cuda.amp.autocast():\n    f()",
    "half precision": f"t = torch.half if {CUDA} else torch.float32",
    "float64": "x.double()",
    "ignored": f"d = 'cuda' if {CUDA} else 'cpu'  # opcheck: ignore[OC222] on the cluster",
    "other uses of the option": "p.add_argument('--where', choices=['cuda', 'cpu'])\nif a.where == 'cuda': pass",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_is_not_safe_stays(tmp_path: Path, text: str) -> None:
    assert fixed(tmp_path, {"a.py": f"import torch\n{text}\n"}) == {}


UNSAFE = {
    "move": ("x.cuda()", f'x.to("cuda" if {CUDA} else "mps" if {MPS} else "cpu")'),
    "text": ("d = 'cuda'\nx.to(d)", f"d = 'cuda' if {CUDA} else 'mps' if {MPS} else 'cpu'\nx.to(d)"),
    "load": ("torch.load('f')", f"torch.load('f', map_location=None if {CUDA} else \"cpu\")"),
    "required": (f"assert {CUDA}, 'x'", f"assert {CUDA} or {MPS}, 'x'"),
    "default": (
        "def f(device='cuda'):\n    'Doc.'\n    return 1",
        f"def f(device=None):\n    'Doc.'\n    if device is None:\n        device = 'cuda' if {CUDA} else 'mps' if {MPS} else 'cpu'\n    return 1",
    ),
    "guarded move": (
        f"if {CUDA}:\n    x = x.cuda()\nelse:\n    pass",
        f"if {CUDA}:\n    x = x.cuda()\nelse:\n    pass",
    ),
    "the first GPU": (
        "x = x.cuda(0, non_blocking=True)",
        f'x = x.to("cuda:0" if {CUDA} else "mps" if {MPS} else "cpu", non_blocking=True)',
    ),
    "refused": (
        f"if not {CUDA}:\n    raise RuntimeError",
        f"if not {CUDA} and not {MPS}:\n    raise RuntimeError",
    ),
    "guarded move alone": (
        f"if {CUDA}:\n    x = x.cuda()",
        f'if {CUDA}:\n    x = x.cuda()\nelif {MPS}:\n    x = x.to("mps")',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), UNSAFE.values(), ids=UNSAFE)
def test_an_unsafe_fix_is_made_only_if_asked(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "safe").mkdir()
    assert fixed(tmp_path / "safe", {"a.py": f"import torch\n{before}"}) == {}
    (tmp_path / "unsafe").mkdir()
    changed = fixed(tmp_path / "unsafe", {"a.py": f"import torch\n{before}"}, unsafe=True)
    assert changed.get("a.py", f"import torch\n{before}") == f"import torch\n{after}"


@pytest.mark.parametrize(
    ("before", "is_bound"),
    [
        ("device = g()\nwith h():", True),
        ("device = g()\nif a:\n    device = h()\nif b:", True),
        ("def f(x, device):", True),
        ("def f(x, device):\n  def inner():", True),
        ("if flag:\n    device = g()\nif b:", False),
        ("try:\n    device = g()\nexcept E:\n    pass\nif b:", False),
        ("try:\n    device = g()\nexcept E:", False),
        ("for i in a:\n    device = g()\nif b:", False),
        ("with suppress(E):\n    device = g()\nif b:", False),
        ("match a:\n    case 1:\n        device = g()\nif b:", False),
        ("match a:\n    case [*device]:\n        pass\nif b:", False),
        ("device = g()\ndel device\nif b:", False),
        ("device = g()\ntry:\n    h()\nexcept E as device:\n    pass\nif b:", False),
        ("def device():\n    pass\nif b:", False),
        ("def f(device, x=y.cuda()):", False),
    ],
)
def test_a_move_takes_a_name_only_where_it_is_bound_for_certain(tmp_path: Path, before: str, *, is_bound: bool) -> None:
    text = f"import torch\n{before}\n    pass\n    y = y.cuda()\n"
    text = text if "y.cuda()):" not in before else f"import torch\n{before}\n    pass\n"
    after = fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]
    assert ("y.to(device)" in after) is is_bound
    assert "y.cuda()" not in after


def test_a_move_takes_no_name_that_is_bound_below_it(tmp_path: Path) -> None:
    text = "import torch\nfor i in a:\n    y = y.cuda()\n    device = g()\n"
    assert "to(device)" not in fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d='cuda'", "d=None"),
        ("*, d: str = 'cuda'", "*, d: str | None = None"),
        ("d: str | torch.device = 'cuda'", "d: str | torch.device | None = None"),
        ("a, /, d: 'str' = 'cuda'", "a, /, d: 'str | None' = None"),
        ("d: Optional[str] = 'cuda'", "d: Optional[str] = None"),
        ("a: int, b: int = 1, d: T = 'cuda'", "a: int, b: int = 1, d: T | None = None"),
    ],
)
def test_a_default_of_none_fits_its_annotation(tmp_path: Path, before: str, after: str) -> None:
    text = f"import torch\ndef f({before}):\n    pass\n"
    assert f"def f({after}):" in fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]


def test_an_annotation_is_not_widened_where_python_3_9_would_read_it(tmp_path: Path) -> None:
    text = "import torch\ndef f(d: str = 'cuda'):\n    pass\n"
    pinned = {"requirements.txt": "torch==2.8\n", "a.py": text}
    assert fixed(tmp_path, pinned, unsafe=True) == {}
    lazy = {**pinned, "a.py": f"from __future__ import annotations\n{text}"}
    assert "d: str | None = None" in fixed(tmp_path, lazy, unsafe=True)["a.py"]


@pytest.mark.parametrize(
    "devices",
    [
        "devices = [cpu, gpu] = [torch.device('cpu'), torch.device('cuda')]",
        "cpu = torch.device('cpu')\ngpu = torch.device('cuda')\ndevices = (cpu, gpu)",
    ],
)
def test_a_device_that_stands_beside_the_cpu_keeps_its_name(tmp_path: Path, devices: str) -> None:
    # Without a GPU, a choice would make both the CPU, and a test that skips one of them skips both.
    assert fixed(tmp_path, {"a.py": f"import torch\n{devices}"}, unsafe=True) == {}
    alone = devices.replace("cpu'", "meta'")
    assert fixed(tmp_path, {"a.py": f"import torch\n{alone}"}, unsafe=True) != {}


# -- the same as before, under a torch that only writes down what is asked of it ----------------------


class _Tensor:
    def __init__(self, log: list[object], device: str = "cpu") -> None:
        self.log, self.device = log, types.SimpleNamespace(type=device)
        self.is_cuda = device == "cuda"

    def to(self, device: object, **options: object) -> _Tensor:
        name = device.device.type if isinstance(device, _Tensor) else str(device)
        if name == self.device.type:
            return self  # as torch does
        self.log.append(("moved", name, options))
        return _Tensor(self.log, name)

    def cuda(self, **options: object) -> _Tensor:
        return self.to("cuda", **options)

    def type(self, kind: str | None = None) -> object:
        return self.device.type if kind is None else self.to(kind)


def _fake_torch(log: list[object], *, cuda: bool, mps: bool) -> types.ModuleType:
    torch: Any = types.ModuleType("torch")

    def autocast(device: str, **options: object) -> _Nothing:
        log.append(("autocast", device, options))
        return _Nothing()

    torch.device = str
    torch.autocast = autocast
    torch.backends = types.SimpleNamespace(mps=types.SimpleNamespace(is_available=lambda: mps))
    torch.mps = types.SimpleNamespace(
        empty_cache=lambda: log.append("mps emptied"), synchronize=lambda: log.append("mps synchronized")
    )
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: cuda,
        # Without CUDA it does nothing.
        empty_cache=lambda: log.append("emptied") if cuda else None,
        synchronize=lambda: log.append("synchronized"),
        amp=types.SimpleNamespace(autocast=functools.partial(_old_autocast, autocast)),
    )
    return torch  # type: ignore[no-any-return]  # a module


def _old_autocast(autocast: Any, enabled: bool = True, **options: object) -> _Nothing:
    return autocast("cuda", enabled=enabled, **options)  # type: ignore[no-any-return]  # the function above


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


PROGRAM = f"""
import torch
use = {CUDA} and not args.cpu
a = 'cuda' if use else 'cpu'
b = torch.device("cuda" if {CUDA} else "cpu")
device = "cuda" if {CUDA} else "cpu"
if {CUDA}:
    c = "cuda"
else:
    c = "cpu"
d = "cpu"
if x.is_cuda:
    d = "cuda"
if {CUDA}:
    x = x.cuda()
x = x.cuda(non_blocking=True) if {CUDA} else x
torch.cuda.empty_cache()
if {CUDA}:
    torch.cuda.synchronize()
with torch.cuda.amp.autocast(False):
    with torch.autocast("cuda"):
        y = x.type(x.type())
def choose():
    if {CUDA}:
        return "cuda"
    return "cpu"
e = choose()
"""


def _run(
    text: str, monkeypatch: pytest.MonkeyPatch, *, cuda: bool, mps: bool, cpu: bool
) -> tuple[list[str], str, list[object]]:
    log: list[object] = []
    monkeypatch.setitem(sys.modules, "torch", _fake_torch(log, cuda=cuda, mps=mps))
    names: dict[str, Any] = {
        "args": types.SimpleNamespace(cpu=cpu),
        "x": _Tensor(log, "cuda" if cuda else "mps" if mps else "cpu"),
    }
    exec(compile(text, "program", "exec"), names)  # noqa: S102  (a program of this file)
    return [str(names[name]) for name in "abcde"], names["x"].device.type, log


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("cuda", [False, True])
def test_a_fixed_program_does_the_same_on_cuda_and_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: bool, cpu: bool
) -> None:
    after = fixed(tmp_path, {"a.py": PROGRAM})["a.py"]
    assert "mps" in after
    before = _run(PROGRAM, monkeypatch, cuda=cuda, mps=False, cpu=cpu)
    assert _run(after, monkeypatch, cuda=cuda, mps=False, cpu=cpu) == before


def test_a_fixed_program_uses_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = fixed(tmp_path, {"a.py": PROGRAM})["a.py"]
    devices, where, log = _run(after, monkeypatch, cuda=False, mps=True, cpu=False)
    assert devices == ["mps"] * 5
    assert where == "mps"
    assert {"mps emptied", "mps synchronized"} <= {entry for entry in log if isinstance(entry, str)}
    devices, _, _ = _run(after, monkeypatch, cuda=False, mps=True, cpu=True)
    assert devices[0] == "cpu"


# -- the helper ---------------------------------------------------------------------------------------

TERNARY = f'"cuda" if {CUDA} else "cpu"'
THREE = f"import torch\nimport pkg.other\n\na = {TERNARY}\nb = torch.device({TERNARY})\nc = torch.device('cuda') if {CUDA} else torch.device('cpu')\n"


def test_three_places_of_a_package_get_a_helper(tmp_path: Path) -> None:
    changed = fixed(tmp_path, {"pkg/__init__.py": "", "pkg/other.py": "", "pkg/a.py": THREE})
    assert "def get_device() -> str:" in changed["pkg/device.py"]
    assert changed["pkg/a.py"] == (
        "import torch\nimport pkg.other\nfrom pkg.device import get_device\n\n"
        "a = get_device()\nb = torch.device(get_device())\nc = torch.device(get_device())\n"
    )


def test_two_places_do_not(tmp_path: Path) -> None:
    text = f"import torch\nimport pkg.other\na = {TERNARY}\nb = {TERNARY}\n"
    changed = fixed(tmp_path, {"pkg/__init__.py": "", "pkg/other.py": "", "pkg/a.py": text})
    assert set(changed) == {"pkg/a.py"}
    assert "get_device" not in changed["pkg/a.py"]


def test_nor_does_a_script_that_imports_no_neighbour(tmp_path: Path) -> None:
    changed = fixed(tmp_path, {"a.py": THREE.replace("import pkg.other\n", "")})
    assert set(changed) == {"a.py"}


HELPER = """
import torch
def best_device():
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
"""


def test_a_helper_of_the_project_is_reused(tmp_path: Path) -> None:
    text = f"import torch\nfrom .tools import f\na = {TERNARY}\n"
    changed = fixed(tmp_path, {"pkg/__init__.py": "", "pkg/tools.py": HELPER, "pkg/a.py": text})
    assert changed == {
        "pkg/a.py": "import torch\nfrom .tools import f\nfrom .tools import best_device\na = best_device().type\n"
    }


def test_a_helper_that_does_not_know_mps_is_corrected_itself(tmp_path: Path) -> None:
    text = f"import torch\ndef get_device():\n    return {TERNARY}\n"
    changed = fixed(tmp_path, {"tools.py": text})
    assert f'return "cuda" if {CUDA} else "mps" if {MPS} else "cpu"' in changed["tools.py"]


# -- other files --------------------------------------------------------------------------------------


def test_requirements_get_a_marker(tmp_path: Path) -> None:
    changed = fixed(
        tmp_path,
        {
            "requirements.txt": ("torch\nflash-attn>=2  # fast\nvllm ; python_version > '3.8'\ndeepspeed\n"),
            "pyproject.toml": '[project]\ndependencies = ["torch", "xformers>=0.0.20"]\n',
        },
    )
    assert changed["requirements.txt"] == (
        'torch\nflash-attn>=2; sys_platform != "darwin"  # fast\n'
        "vllm; (python_version > '3.8') and sys_platform != \"darwin\"\ndeepspeed\n"
    )
    assert changed["pyproject.toml"] == (
        '[project]\ndependencies = ["torch", "xformers>=0.0.20; sys_platform != \'darwin\'"]\n'
    )


def test_a_build_of_torch_for_cuda_leaves_the_plain_release_for_a_mac(tmp_path: Path) -> None:
    other, mac = 'sys_platform != "darwin"', 'sys_platform == "darwin"'
    files = {
        "requirements.txt": "torch==2.7.1+cu118  # pinned\ntorchvision==0.22.1+cu118; python_version > '3.8'\nx==1+cu118\n",
        "pyproject.toml": '[project]\ndependencies = [\n  "torch==2.7.1+cu118",\n]\n',
        "a/pyproject.toml": "[project]\ndependencies = ['torch==2.7.1+cu118']\n",
    }
    changed = fixed(tmp_path, files)
    assert changed["requirements.txt"] == (
        f"torch==2.7.1; {mac}\ntorch==2.7.1+cu118; {other}  # pinned\n"
        f"torchvision==0.22.1; (python_version > '3.8') and {mac}\n"
        f"torchvision==0.22.1+cu118; (python_version > '3.8') and {other}\nx==1+cu118\n"
    )
    assert changed["pyproject.toml"] == (
        "[project]\ndependencies = [\n  \"torch==2.7.1; sys_platform == 'darwin'\",\n"
        "  \"torch==2.7.1+cu118; sys_platform != 'darwin'\",\n]\n"
    )
    assert changed["a/pyproject.toml"] == (
        f"[project]\ndependencies = ['torch==2.7.1; {mac}', 'torch==2.7.1+cu118; {other}']\n"
    )


def _notebook(*cells: str) -> str:
    content = {
        "cells": [
            {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(keepends=True)}
            for cell in cells
        ],
        "metadata": {},
        "nbformat": 4,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def test_a_notebook_keeps_all_but_the_changed_lines(tmp_path: Path) -> None:
    before = (
        "%pip install x\nimport torch",
        f"d = {TERNARY}\nif {CUDA}:\n    d = 'cuda'\nelse:\n    d = 'cpu'",
        "ä = 1",
    )
    after = fixed(tmp_path, {"a.ipynb": _notebook(*before)})["a.ipynb"]
    assert after == _notebook(
        before[0],
        f'd = "cuda" if {CUDA} else "mps" if {MPS} else "cpu"\nif {CUDA}:\n    d = \'cuda\'\n'
        f"elif {MPS}:\n    d = \"mps\"\nelse:\n    d = 'cpu'",
        before[2],
    )


def test_a_notebook_of_another_layout_stays(tmp_path: Path) -> None:
    text = _notebook(f"import torch\nd = {TERNARY}").replace('"nbformat": 4', '"nbformat":  4')
    assert fixed(tmp_path, {"a.ipynb": text}) == {}
    assert fix([str(tmp_path)], TARGET).problems[0].kind == "not_fixed"


@pytest.mark.parametrize(("ending", "mark"), [("\n", ""), ("\r\n", ""), ("\n", "\ufeff")])
def test_line_endings_and_the_byte_order_mark_stay(tmp_path: Path, ending: str, mark: str) -> None:
    text = f"import torch{ending}if {CUDA}:{ending}    d = 'cuda'{ending}else:{ending}    d = 'cpu'{ending}"
    after = fixed(tmp_path, {"a.py": mark + text})["a.py"]
    assert after.count(ending) == after.count("\n") == 7


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_what_is_inserted_ends_as_the_lines_around_it(tmp_path: Path, ending: str) -> None:
    before = f"import torch\nif {CUDA}:\n    torch.cuda.synchronize()".replace("\n", ending)
    after = fixed(tmp_path, {"a.py": before})["a.py"]
    added = f"\nelif {MPS}:\n    torch.mps.synchronize()"
    assert after == before + added.replace("\n", ending)


@pytest.mark.parametrize(("named", "written"), [("latin-1", "latin-1"), ("latin-1", "utf-8"), ("cp932", "cp932")])
def test_a_file_is_fixed_in_its_own_encoding(tmp_path: Path, named: str, written: str) -> None:
    text = "表" if named == "cp932" else "ä"
    before = f"# coding: {named}\nimport torch\ns = '{text}'; d = {TERNARY}\n".encode(written)
    (tmp_path / "a.py").write_bytes(before)
    (change,) = fix([str(tmp_path)], TARGET).changes
    content = TERNARY.replace("else", f'else "mps" if {MPS} else').encode()
    assert change.contents() == (before, before.replace(TERNARY.encode(), content))


def test_a_link_is_not_fixed_but_what_it_leads_to_in_the_folder(tmp_path: Path) -> None:
    for name in ("inside/a.py", "outside.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"import torch\nd = {TERNARY}\n", encoding="utf-8")
    (tmp_path / "inside/b.py").symlink_to("a.py")
    (tmp_path / "inside/c.py").symlink_to(tmp_path / "outside.py")
    result = fix([str(tmp_path / "inside")], TARGET)
    assert [change.path.name for change in result.changes] == ["a.py"]
    assert [Path(problem.module).name for problem in result.problems] == ["c.py"]


def test_a_script_alone_gets_a_function_of_its_own(tmp_path: Path) -> None:
    moves = "\n".join(f"{name} = {name}.cuda()" for name in "abc")
    after = fixed(tmp_path, {"a.py": f"import torch\n\n{moves}\n"}, unsafe=True)["a.py"]
    assert after.startswith("import torch\n\n\ndef get_device() -> str:\n")
    assert after.endswith(f'    return "cpu"\n\n\n{moves.replace("cuda()", "to(get_device())")}\n')
    # Each of two places says it itself.
    two = "\n".join(moves.split("\n")[:2])
    after = fixed(tmp_path / "two", {"a.py": f"import torch\n{two}\n"}, unsafe=True)["a.py"]
    assert "def get_device" not in after


def test_a_function_is_called_only_below_its_definition(tmp_path: Path) -> None:
    function = textwrap.dedent(f"""
        def pick_device():
            if {CUDA}:
                return "cuda"
            return "mps" if {MPS} else "cpu"
    """)
    above, below = "a = a.cuda()\n", "b = b.cuda()\n"
    after = fixed(tmp_path, {"a.py": f"import torch\n{function}{below}"}, unsafe=True)["a.py"]
    assert after.endswith("b = b.to(pick_device())\n")
    after = fixed(tmp_path, {"a.py": f"import torch\n{above}{function}{below}"}, unsafe=True)["a.py"]
    assert "pick_device())" not in after


def test_a_file_that_only_its_neighbour_imports_gets_no_import_from_there(tmp_path: Path) -> None:
    moves = "".join(f"{name} = {name}.cuda()\n" for name in "xyz")
    files = {"x/a.py": f"import torch\n{moves}", "x/b.py": f"import torch\nimport a\n{moves}"}
    changed = fixed(tmp_path, files, unsafe=True)
    assert "from device import" in changed["x/b.py"]
    assert "import get_device" not in changed["x/a.py"]
    assert "def get_device" in changed["x/a.py"]


@pytest.mark.parametrize(
    "text",
    [
        "def init_distributed():\n    assert torch.cuda.is_available()\n",
        "def sizes(x, device):\n    d = 'cuda' if device in ('cuda', 'cuda:0') else 'cpu'\n",
        "def sizes(x):\n    n = x.to('cuda')\n    torch.distributed.all_gather(sizes, n)\n",
    ],
)
def test_what_processes_exchange_stays_on_cuda(tmp_path: Path, text: str) -> None:
    assert fixed(tmp_path, {"a.py": f"import torch\n{text}"}, unsafe=True) == {}


def test_what_processes_exchange_says_why_it_is_left_alone(tmp_path: Path) -> None:
    text = "import torch\ndef f(x):\n    x = x.cuda()\n    torch.distributed.all_reduce(x)\ndef g(x):\n    return x.cuda(1, 2)\n"
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    exchanged, other = (each.fix for each in scan([str(tmp_path)], TARGET).findings)
    assert exchanged == (
        "none: the function exchanges tensors with other processes, and no backend of torch.distributed takes those on MPS"
    )
    assert other == "none: the device that is meant is not a plain CUDA device, or torch is not imported by its name"


def test_a_type_for_autocast_has_no_mps_where_the_projects_torch_may_not_take_it(tmp_path: Path) -> None:
    text = "import torch\nkind = 'cuda' if 'cuda' in device else 'cpu'  # a long comment, which does not count, to the end\n"
    assert "'mps' in device" in fixed(tmp_path, {"a.py": text})["a.py"]
    older = {"old/a.py": text, "old/requirements.txt": "torch==2.4.0\n"}
    assert "old/a.py" not in fixed(tmp_path, older, unsafe=True)


def test_a_collective_behind_a_flag_keeps_nothing_from_being_fixed(tmp_path: Path) -> None:
    text = "def step(x):\n    x = x.cuda()\n    if args.distributed:\n        torch.distributed.all_reduce(x)\n"
    assert "mps" in fixed(tmp_path, {"a.py": f"import torch\n{text}"}, unsafe=True)["a.py"]


def test_parentheses_around_lines_go_where_one_line_is_left(tmp_path: Path) -> None:
    text = "import torch\nd = (torch.device('cuda')\n     if x.is_cuda\n     else torch.device('cpu'))  # d\n"
    after = fixed(tmp_path, {"a.py": text})["a.py"]
    assert after == "import torch\nd = torch.device(x.device.type)  # d\n"


@pytest.mark.parametrize(("other", "is_fixed"), [("", True), ("GradScaler()", False), ("loss_scaler.step(o)", False)])
def test_autocast_is_not_fixed_by_itself_where_gradients_are_scaled(tmp_path: Path, other: str, is_fixed: bool) -> None:
    text = "with torch.cuda.amp.autocast():\n    with torch.cuda.amp.autocast(enabled=False):\n        f(x)\n"
    changed = fixed(tmp_path, {"a.py": f"import torch\n{text}{other}"})
    assert changed.get("a.py", "").count('"mps"') == 2 * is_fixed


_CAST = "with autocast():\n    f(x)\n"


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("from torch.cuda.amp import autocast", ""),
        ("from torch.cuda.amp import autocast, custom_fwd", "from torch.cuda.amp import custom_fwd\n"),
        ("from torch.cuda.amp import autocast  # why", None),
        ("try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    pass", None),
        ("from torch.cuda.amp import autocast\n__all__ = ['autocast']", None),
    ],
)
def test_an_import_that_nothing_uses_any_more_goes(tmp_path: Path, statement: str, left: str | None) -> None:
    after = fixed(tmp_path, {"a.py": f"import torch\n{statement}\n{_CAST}"})["a.py"]
    kept = statement + "\n" if left is None else left
    assert after.partition("with")[0] == f"import torch\n{kept}"


@pytest.mark.parametrize("other", ["from a import autocast", "from .a import *", "import a\na.autocast()"])
def test_an_import_that_another_file_may_use_stays(tmp_path: Path, other: str) -> None:
    first = "import torch\nfrom torch.cuda.amp import autocast\n"
    after = fixed(tmp_path, {"a.py": f"{first}{_CAST}", "b.py": f"{other}\n"})["a.py"]
    assert after.startswith(first)


def test_what_a_named_link_leads_to_is_fixed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(f"import torch\nd = {TERNARY}\n", encoding="utf-8")
    Path("b.py").symlink_to("a.py")
    Path("c.py").symlink_to("b.py")
    (change,) = fix(["b.py", "c.py"], TARGET).changes
    assert change.path == Path("a.py")
    assert change.diff().startswith("--- a.py\n+++ a.py\n")


def test_comments_in_a_replaced_statement_come_to_stand_above_it(tmp_path: Path) -> None:
    before = "import torch\nd = 'cpu'  # base\nif x.is_cuda:  # asks\n    # then\n    d = 'cuda'  # fast\n"
    after = fixed(tmp_path, {"a.py": before})["a.py"]
    assert after == "import torch\n# base\n# asks\n# then\nd = x.device.type  # fast\n"


def test_a_comment_in_a_replaced_expression_keeps_it_from_being_fixed(tmp_path: Path) -> None:
    assert fixed(tmp_path, {"a.py": "import torch\ny = x.type(  # why\n    z.type()\n)\n"}) == {}


def test_a_fix_in_an_f_string_has_only_quotes_that_stand_there_already(tmp_path: Path) -> None:
    text = "import torch\nprint(f\"{torch.load('f')} {x.cuda()} {x.type(y.type())}\")\n"
    changed = fixed(tmp_path, {"a.py": text}, unsafe=True)
    assert changed == {"a.py": text.replace("x.type(y.type())", "x.to(y)")}
    choice = f"import torch\nprint(f\"{{'cuda' if {CUDA} else 'cpu'}}\")\n"
    changed = fixed(tmp_path, {"a.py": choice})
    assert changed == {"a.py": choice.replace("else", f"else 'mps' if {MPS} else")}


def test_an_import_of_the_helper_stands_below_the_statement_that_ends_last(tmp_path: Path) -> None:
    files = {"pkg/__init__.py": "", "pkg/other.py": ""}
    text = THREE.replace("import pkg.other\n", "import pkg.other; x = (\n    1)\n").replace("\n", "\r")
    after = fixed(tmp_path, {**files, "pkg/a.py": text})["pkg/a.py"]
    assert "x = (\r    1)\rfrom pkg.device import get_device\r" in after


def test_lines_of_requirements_are_those_that_pip_sees(tmp_path: Path) -> None:
    before = "# a\x0cb \u2028 c\nvllm==0.5 \\\n    --hash=sha256:aa\nxformers \\\n    >=0.0.20\n"
    changed = fixed(tmp_path, {"requirements.txt": before})
    assert changed == {"requirements.txt": before.replace("0.5 ", '0.5; sys_platform != "darwin" ')}


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_a_notebook_keeps_its_newlines(tmp_path: Path, ending: str) -> None:
    before = _notebook(f"import torch\nd = {TERNARY}").replace("\n", ending)
    after = fixed(tmp_path, {"a.ipynb": before})["a.ipynb"]
    assert MPS in after
    assert after.replace(f'\\"mps\\" if {MPS} else ', "") == before


def test_a_notebook_in_another_encoding_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(_notebook(f"import torch\nd = {TERNARY}").encode("utf-16"))
    result = fix([str(tmp_path)], TARGET)
    assert result.changes == ()
    assert [problem.kind for problem in result.problems] == ["not_fixed"]


def test_a_statement_of_ipython_is_never_replaced(tmp_path: Path) -> None:
    cell = f"import torch\ndevice = 'cuda' if {CUDA} else 'cpu'\nif {CUDA}:\n    %time x = 1\n    m = m.cuda()"
    changed = fixed(tmp_path, {"a.ipynb": _notebook(cell)}, unsafe=True)
    assert "%time x = 1" in changed["a.ipynb"]


def test_a_diff_has_the_lines_of_patch() -> None:
    diff = FileChange(Path("a.py"), "s = '\x0c'\r\nb\r", "s = '\x0c'\r\nc\r").diff()
    assert diff.splitlines(keepends=False)[0] == "--- a.py"
    assert " s = '\x0c'\r\n-b\r\n" in diff
    assert diff.endswith("+c\r\n\\ No newline at end of file\n")


def test_edits_that_overlap_wait_for_the_next_round() -> None:
    lines = ["ab\n", "cd\n"]
    first, second = Edit(1, 0, 1, 2, "x"), Edit(1, 1, 2, 1, "y")
    assert apply(lines, [(second,), (first,)]) == ("x\ncd\n", [1])
    assert apply(lines, [(Edit(1, 2, 2, 0, ""),)]) == ("abcd\n", [0])
    assert apply(["a"], [(Edit(2, 0, 2, 0, "b\n"),)]) == ("a\nb", [0])


def test_the_work_grows_as_the_fixes_of_a_line_do() -> None:
    number = 50_000
    fixes = [(Edit(1, 2 * place, 1, 2 * place + 1, "xyz"),) for place in range(number)]
    text, applied = apply(["ab" * number], fixes)
    assert (len(applied), text) == (number, "xyzb" * number)


def test_the_program_of_this_file_is_a_program() -> None:
    compile(textwrap.dedent(PROGRAM), "program", "exec")


# -- what a reviewer would merge ----------------------------------------------------------------------

MERGED = {
    "a parameter": ("def f(x, device):\n    return x.cuda()", "x.to(device)"),
    "a value": ("device = g()\nx.to('cuda')", "x.to(device)"),
    "a keyword": ("device = g()\ny = torch.zeros(2, device='cuda')", "device=device)"),
    "a GPU by its index": ("x.cuda(gpu)", f'x.to("mps" if {MPS} else gpu)'),
    "a device": ("x.cuda(device, non_blocking=True)", "x.to(device, non_blocking=True)"),
    "a device alone": ("x.cuda(my_device)", "x.to(my_device)"),
    "a file": ("torch.load('f', map_location=f'cuda:{rank}')", f"map_location=\"mps\" if {MPS} else f'cuda:{{rank}}')"),
    "a range": ("torch.cuda.nvtx.range_push('a')", f"if {CUDA}:\n    torch.cuda.nvtx.range_push('a')"),
    "a peak": ("torch.cuda.reset_peak_memory_stats(0)", f"if {CUDA}:\n    torch.cuda.reset_peak_memory_stats(0)"),
    "a range with a result": ("a = torch.cuda.nvtx.range_push('a')", None),
    "the current GPU": ("torch.cuda.set_device(i)", f"if {CUDA}:\n    torch.cuda.set_device(i)"),
    "a type": ("device = g()\nx.type(torch.cuda.LongTensor)", "x.to(device, torch.int64)"),
    "a type of float64": ("x.type(torch.cuda.DoubleTensor)", None),
    "a constructor": ("torch.cuda.FloatTensor(3, 4)", None),
    "memory": ("torch.cuda.empty_cache()", f"(torch.mps if {MPS} else torch.cuda).empty_cache()"),
}


@pytest.mark.parametrize(("text", "part"), MERGED.values(), ids=MERGED)
def test_a_fix_uses_what_stands_there_in_few_short_lines(tmp_path: Path, text: str, part: str | None) -> None:
    after = fixed(tmp_path, {"a.py": f"import torch\n{text}\n"}, unsafe=True).get("a.py")
    assert (after is None) if part is None else (after is not None and part in after)


def test_the_current_gpu_is_not_guarded_where_nccl_fails_later(tmp_path: Path) -> None:
    text = "import torch\ntorch.cuda.set_device(i)\ntorch.distributed.init_process_group('nccl')\n"
    assert fixed(tmp_path, {"a.py": text}, unsafe=True) == {}


@pytest.mark.parametrize("place", ["device", "a_name_that_is_long"])
def test_a_choice_that_makes_a_line_too_long_becomes_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    after = fixed(tmp_path, {"a.py": f"import torch\n{place} = {TERNARY}\n"})["a.py"]
    assert f"{place} = get_device()" in after
    assert max(map(len, after.splitlines())) <= 100


def test_a_function_of_the_name_of_the_helper_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    text = f"import torch\ndef get_device():\n    return {TERNARY}\n"
    assert "return get_device()" not in fixed(tmp_path, {"a.py": text})["a.py"]


def test_a_repository_gets_one_helper_for_its_folders(tmp_path: Path) -> None:
    for folder in ("pk", "tools", "pk/sub"):
        (tmp_path / folder).mkdir()
    choice = 'd = "cuda" if torch.cuda.is_available() else "cpu"\n'
    files = {
        "pk/__init__": "",
        "pk/sub/__init__": "",
        "pk/model": "from pk import sub\n" + choice * 3,
        "pk/sub/layer": "from .. import model\n" + choice,
        "tools/train": "import pk.model\nimport other\n" + choice * 4,
        "tools/other": "import train\n" + choice * 4,
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(f"import torch\n{text}", encoding="utf-8")
    changes = {change.path: change for change in fix([str(tmp_path)], TARGET).changes}
    new = [path.relative_to(tmp_path).as_posix() for path, each in changes.items() if not each.before]
    assert new == ["pk/device.py"]
    users = [path.stem for path, each in changes.items() if "device import get_device" in each.after]
    assert users == ["model", "layer", "other", "train"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            'def f(x, device):\n    return torch.load(x, map_location="cuda:0")\n',
            "def f(x, device):\n    return torch.load(x, map_location=device)\n",
        ),
        (
            "def f(model, device):\n    if torch.cuda.is_available():\n        model = model.cuda()\n",
            "def f(model, device):\n    model = model.to(device)\n",
        ),
        (
            'def f():\n    with torch.autocast("cuda", dtype=torch.bfloat16):\n        pass\n',
            (
                "def f():\n    with torch.autocast(\n"
                '        "mps" if torch.backends.mps.is_available() else "cuda", dtype=torch.bfloat16\n    ):\n        pass\n'
            ),
        ),
        (
            "def f(x, device):\n    return torch.load(x, map_location=lambda storage, loc: storage.cuda())\n",
            "def f(x, device):\n    return torch.load(x, map_location=device)\n",
        ),
        (
            "def f(device):\n    return map(lambda x: x.cuda(), range(3))\n",
            "def f(device):\n    return map(lambda x: x.to(device), range(3))\n",
        ),
        (
            'def f(path, rank):\n    checkpoint = torch.load(path, map_location=f"cuda:{rank}")\n',
            (
                "def f(path, rank):\n    checkpoint = torch.load(\n"
                f'        path, map_location="mps" if {MPS} else f"cuda:{{rank}}"\n    )\n'
            ),
        ),
        (
            "class A:\n    def f(self):\n        start = torch.cuda.Event(enable_timing=True)\n",
            (
                f"class A:\n    def f(self):\n        start = (torch.mps if {MPS} else torch.cuda).Event(\n"
                "            enable_timing=True\n        )\n"
            ),
        ),
    ],
    ids=["cuda:0", "a guarded move", "autocast", "a storage", "a lambda", "a file", "an event"],
)
def test_a_device_in_scope_comes_first_and_no_choice_makes_a_line_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    assert fixed(tmp_path, {"a.py": f"import torch\n{before}"}, unsafe=True)["a.py"] == f"import torch\n{after}"


def test_the_state_of_the_generator_is_read_and_set_on_one_device(tmp_path: Path) -> None:
    before = "import torch\nstate = torch.cuda.get_rng_state()\ntorch.cuda.set_rng_state(state)\n"
    device = f"(torch.mps if {MPS} else torch.cuda)"
    assert fixed(tmp_path, {"a.py": before}) == {}
    after = before.replace("torch.cuda", device)
    assert fixed(tmp_path, {"a.py": before}, unsafe=True) == {"a.py": after}


@pytest.mark.parametrize("arguments", ["0", "device=0", "state, 0"])
def test_the_state_of_a_named_gpu_stays(tmp_path: Path, arguments: str) -> None:
    name = "set_rng_state" if "state" in arguments else "get_rng_state"
    assert fixed(tmp_path, {"a.py": f"import torch\ntorch.cuda.{name}({arguments})\n"}, unsafe=True) == {}


def test_a_call_in_an_f_string_gets_no_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    line = "print(f'a long text that comes before the call {torch.load(a, map_location=f\"cuda:{b}\")}')"
    assert fixed(tmp_path, {"a.py": f"import torch\n{line}\n"}, unsafe=True) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            'if x.device.type != "cuda":\n    raise SystemExit("no GPU")',
            'if x.device.type not in {"cuda", "mps"}:\n    raise SystemExit("no GPU")',
        ),
        ('assert x.device.type == "cuda"', 'assert x.device.type in {"cuda", "mps"}'),
        ("torch.set_default_tensor_type(torch.cuda.FloatTensor)", "torch.set_default_device(device)"),
        (
            "if x:\n    torch.set_default_tensor_type(torch.cuda.HalfTensor)",
            "if x:\n    torch.set_default_dtype(torch.float16)\n    torch.set_default_device(device)",
        ),
        ("old = torch.set_default_tensor_type(torch.cuda.HalfTensor)", ""),
        ("torch.set_default_tensor_type(torch.cuda.DoubleTensor)", ""),
        ("assert x.is_cuda", 'assert x.device.type in {"cuda", "mps"}'),
        ("if not x.is_cuda:\n    raise E", 'if x.device.type not in {"cuda", "mps"}:\n    raise E'),
        ("assert (x + x).is_cuda", ""),
        ("assert self.args.is_cuda", ""),
    ],
)
def test_a_refusal_by_the_type_of_a_device_and_a_default_type_know_mps(tmp_path: Path, before: str, after: str) -> None:
    head = "import torch\ndevice = g()\nx = f(device)\n"
    changed = fixed(tmp_path, {"a.py": f"{head}{before}\n"}, unsafe=True)
    assert changed == ({"a.py": f"{head}{after}\n"} if after else {})


def test_a_finding_without_a_fix_says_that_the_line_would_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    line = f"x = y.cuda(arguments.{'a' * 60})"
    (tmp_path / "a.py").write_text(f"import torch\n{line}\n", encoding="utf-8")
    (finding,) = scan([str(tmp_path)], TARGET).findings
    assert finding.fix == "none: the line would have more than 100 columns"


def test_scripts_at_the_top_of_a_repository_share_a_helper(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    text = "import torch\nx = torch.zeros(2).cuda()\ny = torch.zeros(2).cuda()\n"
    changed = fixed(tmp_path, {"a.py": text, "b.py": text}, unsafe=True)
    assert sorted(changed) == ["a.py", "b.py", "device.py"]
    assert all("from device import get_device\n" in changed[name] for name in ("a.py", "b.py"))


def test_a_package_that_the_project_imports_by_a_longer_name_is_imported_relatively(tmp_path: Path) -> None:
    text = "import torch\nfrom .dpm import solver\nd = torch.zeros(2).cuda()\n"
    files = {"ldm/diffusion/__init__.py": "", "ldm/diffusion/dpm/__init__.py": "", "ldm/diffusion/dpm/solver.py": ""}
    changed = fixed(tmp_path, files | {"ldm/diffusion/a.py": text * 3, "ldm/diffusion/dpm/b.py": text}, unsafe=True)
    assert "from .device import get_device\n" in changed["ldm/diffusion/a.py"]
    assert "from ..device import get_device\n" in changed["ldm/diffusion/dpm/b.py"]


def test_a_script_imports_the_helper_of_the_package_that_it_imports_from(tmp_path: Path) -> None:
    use = f"import torch\nimport pkg.model\nd = {TERNARY}\n"
    changed = fixed(tmp_path, {"pkg/__init__.py": "", "pkg/model.py": use * 3, "tests/test_a.py": use})
    assert "from pkg.device import get_device\n" in changed["tests/test_a.py"]


@pytest.mark.parametrize("indent", ["", "    " * 3])
def test_a_call_without_arguments_gets_one_line_for_its_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: str
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 80)
    head = "".join(f"{indent[: 4 * level]}if x:\n" for level in range(len(indent) // 4))
    text = f"import torch\n{head}{indent}scaler = torch.cuda.amp.GradScaler()\n"
    after = fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]
    device = '"mps" if torch.backends.mps.is_available() else "cuda"'
    assert after.endswith(f"{indent}scaler = torch.amp.GradScaler(\n{indent}    {device}\n{indent})\n")


@pytest.mark.parametrize(("columns", "is_wrapped"), [(100, False), (101, True)])
def test_the_device_of_a_move_gets_a_line_where_the_line_would_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, *, is_wrapped: bool
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    name = "x" * (columns - len("m = f().to(device)"))
    after = fixed(tmp_path, {"a.py": f"import torch\ndevice = g()\nm = f({name}).cuda()\n"}, unsafe=True)["a.py"]
    moved = "to(\n    device\n)" if is_wrapped else "to(device)"
    assert after == f"import torch\ndevice = g()\nm = f({name}).{moved}\n"


@pytest.mark.parametrize("written", ["cuda", "c\U0001d42eda", "cud\uff41"])
def test_only_a_name_that_is_written_plainly_is_replaced(tmp_path: Path, written: str) -> None:
    changed = fixed(tmp_path, {"a.py": f"import torch\ndevice = g()\nx = f().{written}()\n"}, unsafe=True)
    assert bool(changed) == (written == "cuda")


def test_a_notebook_with_a_long_choice_gets_a_function_below_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    cells = [
        "%matplotlib inline\nimport torch as th\nprint(1)",
        "x = th.zeros(2).cuda()",
        "device = 'cuda'\nx.to(device)",
    ]
    document = {
        "cells": [{"cell_type": "code", "metadata": {}, "source": text.splitlines(keepends=True)} for text in cells]
    }
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    after = json.loads(fixed(tmp_path, {}, unsafe=True)["a.ipynb"])
    first, second, third = ("".join(cell["source"]) for cell in after["cells"])
    assert first.startswith("%matplotlib inline\nimport torch as th\n\n\ndef get_device() -> str:\n")
    assert "if th.cuda.is_available():\n" in first
    assert first.endswith('return "cpu"\n\n\nprint(1)')
    assert (second, third) == ("x = th.zeros(2).to(get_device())", "device = get_device()\nx.to(device)")


@pytest.mark.parametrize(("owner", "is_seen"), [("class T", False), ("def t()", True)])
def test_a_method_does_not_use_the_device_of_its_class(tmp_path: Path, owner: str, *, is_seen: bool) -> None:
    text = f"import torch\n{owner}:\n    device = f()\n    def run(self, x):\n        return x.cuda()\n"
    after = fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]
    assert ("x.to(device)" in after) is is_seen


@pytest.mark.parametrize("name", ["y", "y" * 13])
def test_the_fixes_of_a_line_are_measured_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    line = f"    return model({name}.cuda(non_blocking=True), {name}.cuda(non_blocking=True))"
    text = f"import torch\ndef f({name}, model, device):\n{line}\n"
    after = fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]
    assert ".cuda(" not in after
    assert max(map(len, after.splitlines())) <= 100
    assert len(after.splitlines()) == (3 if name == "y" else 5)


def test_the_edits_of_a_fix_are_measured_together() -> None:
    pair = [Edit(1, 0, 1, 0, "123"), Edit(1, 9, 1, 9, "123")]
    assert edits.fit(pair, ["x" * (edits.LONGEST_LINE - 6)]) is not None
    assert edits.fit(pair, ["x" * (edits.LONGEST_LINE - 5)]) is None


def test_autocast_gets_lines_for_its_arguments_where_all_of_them_then_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edits, "LONGEST_LINE", 100)
    call = "torch.cuda.amp.autocast(fp16_scaler is not None)"
    text = f"import torch\ndef f(x, fp16_scaler):\n    for i in x:\n        with {call}:\n            g(i)\n"
    after = fixed(tmp_path, {"a.py": text}, unsafe=True)["a.py"]
    line = f'            "mps" if {MPS} else "cuda", enabled=fp16_scaler is not None'
    assert len(line) == 99
    assert f"        with torch.autocast(\n{line}\n        ):\n" in after
