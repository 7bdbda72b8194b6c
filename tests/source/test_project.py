"""Names are followed to other files of the project, and code that is for CUDA by intent is no error."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from opcheck.model.records import Finding
from opcheck.source import source
from opcheck.source.engine import scan
from tests.source.reading import TARGET


def findings(folder: Path, files: dict[str, str]) -> list[tuple[str, str, int]]:
    """The rules, files and lines that a project is told of."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    report = scan([str(folder)], TARGET)
    return [(finding.rule, *_place(finding, folder)) for finding in report.findings]


def _place(finding: Finding, folder: Path) -> tuple[str, int]:
    where = finding.locations[0].location
    assert where is not None
    return Path(where.file).relative_to(folder).as_posix(), where.line


USES = {
    "constant": ("D = 'cuda'", "import torch\nfrom config import D\nx.to(D)", ("OC202", "main.py", 3)),
    "attribute": ("D = 'cuda'", "import torch\nimport config\nx.to(config.D)", ("OC202", "main.py", 3)),
    "default": ("def f(x, device='cuda'): pass", "from config import f\nf(1)", ("OC203", "main.py", 2)),
    "class": ("class C:\n    def __init__(self, d='cuda'): pass", "import config\nconfig.C()", ("OC203", "main.py", 2)),
    "keyword": ("def f(*, device='cuda'): pass", "from config import f\nf()", ("OC203", "main.py", 2)),
}


@pytest.mark.parametrize(("config", "main", "expected"), USES.values(), ids=USES)
def test_a_name_of_another_file_is_followed(
    tmp_path: Path, config: str, main: str, expected: tuple[str, str, int]
) -> None:
    assert expected in findings(tmp_path, {"config.py": f"import torch\n{config}\n", "main.py": main})


GIVEN = {
    "a device is given": ("def f(x, device='cuda'): pass", "from config import f\nf(1, d)"),
    "by name": ("def f(x, device='cuda'): pass", "from config import f\nf(1, device=d)"),
    "by a mapping": ("def f(x, device='cuda'): pass", "from config import f\nf(1, **kw)"),
    "another default": ("def f(x, device='cpu'): pass", "from config import f\nf(1)"),
    "another module": ("def f(x, device='cuda'): pass", "from other import f\nf(1)"),
    "guarded there": (
        "import torch\nD = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "import torch\nfrom config import D\nx.to(D)",
    ),
    "rebound there": ("D = 'cuda'\nD = choose()", "import torch\nfrom config import D\nif D == 'x':\n    x.to(1)"),
}


@pytest.mark.parametrize(("config", "main"), GIVEN.values(), ids=GIVEN)
def test_a_call_that_gives_the_device_is_silent(tmp_path: Path, config: str, main: str) -> None:
    named = findings(tmp_path, {"config.py": config, "main.py": main})
    assert [each for each in named if each[1] == "main.py"] == []


def test_relative_imports_and_names_that_are_handed_on_are_followed(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .config import D\n",
        "pkg/config.py": "D = 'cuda'\n",
        "pkg/sub/__init__.py": "",
        "pkg/sub/a.py": "import torch\nfrom ..config import D\nx.to(D)\n",
        "pkg/sub/b.py": "import torch\nfrom pkg import D\nx.to(D)\n",
        "pkg/c.py": "import torch\nfrom . import config\nx.to(config.D)\n",
    }
    assert findings(tmp_path, files) == [
        ("OC202", "pkg/c.py", 3),
        ("OC202", "pkg/sub/a.py", 3),
        ("OC202", "pkg/sub/b.py", 3),
    ]


def test_files_that_import_each_other_end(tmp_path: Path) -> None:
    files = {
        "a.py": "import torch\nfrom b import D\nx.to(D)  # cuda\n",
        "b.py": "import torch\nfrom a import D\nx.to(D)  # cuda\n",
    }
    assert findings(tmp_path, files) == []


INTENDED = {
    "several GPUs": "if ddp:\n    x.cuda()",
    "one process has left": "def f(x):\n    if ddp_size() == 1:\n        return x\n    return x.cuda()",
    "no process group": "def f(x):\n    if not is_ddp():\n        return x\n    return x.cuda()",
    "a named GPU": "if args.gpu is not None:\n    x.cuda(args.gpu)",
    "offloading": "if offload:\n    x.to('cuda')",
    "a branch that demands CUDA": "if kind == 'blade':\n    assert torch.cuda.is_available() or x\n    x.cuda()",
    "called from there": (
        "def _f(x):\n    x.cuda()\nif kind == 'blade':\n    assert torch.cuda.is_available() or x\n    _f(x)"
    ),
    "a stream for another library": ("def f(x, stream):\n    x.cuda()\n    engine.run(stream.cuda_stream)"),
    "a worker": "def main_worker(rank):\n    x.cuda(rank)",
}


def test_what_the_modules_of_a_project_hold_is_moved(tmp_path: Path) -> None:
    files = {"shared.py": "model = None\n", "main.py": "import shared\nshared.model.cuda()\nshared.cuda()\n"}
    assert findings(tmp_path, files) == [("OC201", "main.py", 2)]


def test_a_device_that_is_replaced_without_cuda_is_no_error(tmp_path: Path) -> None:
    text = """
        import torch
        def f(device):
            device = torch.device("cuda")
            if not torch.cuda.is_available():
                device = torch.device("cpu")
            return device
    """
    program = tmp_path / "a.py"
    program.write_text(textwrap.dedent(text), encoding="utf-8")
    severities = {each.severity for each in scan([str(tmp_path)], TARGET).findings}
    assert severities == {"warning"}
    program.write_text(textwrap.dedent(text).replace("not torch.cuda", "not x"), encoding="utf-8")
    assert "error" in {each.severity for each in scan([str(tmp_path)], TARGET).findings}


@pytest.mark.parametrize("text", INTENDED.values(), ids=INTENDED)
def test_code_for_cuda_by_intent_is_a_warning(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(f"import torch\n{text}\n", encoding="utf-8")
    assert [finding.severity for finding in scan([str(tmp_path)], TARGET).findings] == ["warning"]
    (tmp_path / "a.py").write_text(f"import torch\n{text.replace('ddp', 'fast')}\n", encoding="utf-8")
    severities = {finding.severity for finding in scan([str(tmp_path)], TARGET).findings}
    assert severities == ({"error"} if "ddp" in text else {"warning"})


def test_a_value_that_comes_through_hundreds_of_files_is_unknown(tmp_path: Path) -> None:
    for number in range(300):
        text = f"from m{number + 1} import x as y\nx = y or 'cuda'\n"
        (tmp_path / f"m{number}.py").write_text(f"import torch\n{text}", encoding="utf-8")
    report = scan([str(tmp_path)], TARGET)
    assert (report.problems, report.read["python"]) == ((), 300)


def test_a_file_is_followed_once_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # More files than the engine keeps, and each layer imports all of the next: 80**3 ways.
    for layer in range(4):
        for number in range(80):
            lines = [f"from m{layer + 1}_{each} import x as y{each}" for each in range(80)]
            x = f"x = {' or '.join(f'y{each}' for each in range(80))} or 'cuda'"
            text = "\n".join(["import torch", *lines, x, "torch.zeros(3, device=x)"])
            (tmp_path / f"m{layer}_{number}.py").write_text(text, encoding="utf-8")
    parsed = 0
    parse = source.parse

    def counted(text: str, shown: str) -> ast.Module:
        nonlocal parsed
        parsed += 1
        return parse(text, shown)

    monkeypatch.setattr(source, "parse", counted)
    scan([str(tmp_path)], TARGET)
    assert parsed <= 4 * 320


def test_names_of_torch_are_followed_through_files_that_import_them_for_others(tmp_path: Path) -> None:
    package = tmp_path / "pk"
    package.mkdir()
    files = {
        "__init__": "",
        "base": "from torch import *\n",
        "middle": "from .base import *\n",
        "common": "import torch\nimport torch.nn as nn\n",
        "own": "def device(x): return x\n",
        "a_star": "from .middle import *\nx = zeros(3, device=device('cuda'))\n",
        "b_name": "from .common import torch, nn\ntorch.cuda.synchronize()\nnn.DataParallel(x)\n",
        "c_other": "from .own import *\ndef f(): return device('cuda')\n",
        "d_cycle": "from .e_cycle import *\ndevice('cuda')\n",
        "e_cycle": "from .d_cycle import *\ndevice('cuda')\n",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    found = [
        (finding.rule, Path(finding.locations[0].location.file).stem)
        for finding in scan([str(tmp_path)], TARGET).findings
        if finding.locations[0].location
    ]
    assert found == [("OC202", "a_star"), ("OC205", "b_name"), ("OC228", "b_name")]
