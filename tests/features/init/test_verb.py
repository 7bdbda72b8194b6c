"""``opcheck init``: a table that the gate reads, a workflow, and nothing that was there is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from opcheck.cli import config
from opcheck.cli.config import read_ignores
from opcheck.data.registrations import OpLists
from opcheck.features.gate.gate_records import settings
from tests.command_line import CommandLine

NET = "from torch import nn\nclass Part(nn.Module): pass\nclass Net(nn.Module):\n    part = Part()\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_table_holds_the_models_of_the_folder_and_the_gate_reads_it(opcheck: CommandLine, lists: OpLists) -> None:
    Path("net.py").write_text(NET, encoding="utf-8")
    result = opcheck("init")
    assert (result.code, result.out) == (0, "")
    assert "written to opcheck.toml; next: opcheck gate" in result.err
    plan = settings(*config.table(Path.cwd()), lists)
    assert [model.model for model in plan.models] == ["net.py:Net"]
    assert len(plan.targets) == 1


def test_what_is_commented_out_is_valid_too(opcheck: CommandLine, lists: OpLists) -> None:
    assert opcheck("init", "--model", "net.py:Net").code == 0
    path = Path("opcheck.toml")
    lines = path.read_text(encoding="utf-8").splitlines()
    active = [
        line.removeprefix("# ") if "=" in line.partition("#")[2] or line.startswith("# [") else line for line in lines
    ]
    path.write_text("\n".join(active), encoding="utf-8")
    content, where = config.table(Path.cwd())
    assert {"torch", "macos", "fallback", "fail-on", "models", "targets", "ignore"} == set(content)
    assert settings(content, where, lists).models[0].model == "net.py:Net"
    assert len(read_ignores(content["ignore"], where)) == 1


PART = (
    "from torch import nn\nclass Part(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.inner = nn.Linear(4, 4)\n    def forward(self, x):\n        return self.inner(x)\n"
)
WHOLE = (
    "from torch import nn\nfrom .layers import Part\nclass Net(nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.part = Part()\n    def forward(self, x):\n        return self.part(x)\n"
)


@pytest.mark.parametrize("top", ["", "src"])
def test_the_models_of_a_package_are_found_without_their_parts_and_the_gate_passes_them(
    opcheck: CommandLine, top: str
) -> None:
    package = Path(top, "mylib")
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "layers.py").write_text(PART, encoding="utf-8")
    (package / "models.py").write_text(WHOLE, encoding="utf-8")
    (Path("tests")).mkdir()
    Path("tests/test_net.py").write_text(NET, encoding="utf-8")
    result = opcheck("init")
    assert "1 module without arguments in 3 Python files: mylib.models:Net" in result.err
    assert opcheck("gate", "-q").code == 0


def test_a_folder_without_a_model_gets_no_placeholder(opcheck: CommandLine) -> None:
    Path("wide.py").write_text("from torch import nn\nclass Wide(nn.Module):\n    def __init__(self, width): pass\n")
    result = opcheck("init")
    assert result.code == 2
    assert "opcheck init --model wide.py:Wide" in result.err
    Path("wide.py").write_text("x = 1\n")
    assert "no module of PyTorch in 1 Python file" in opcheck("init").err
    assert not Path("opcheck.toml").exists()


def test_a_pyproject_keeps_what_it_has(opcheck: CommandLine) -> None:
    path = Path("pyproject.toml")
    path.write_text('[project]\nname = "mine"\n', encoding="utf-8")
    assert opcheck("init", "--model", "timm:resnet18").code == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith('[project]\nname = "mine"\n\n[tool.opcheck]\n')
    again = opcheck("init")
    assert again.code == 2
    assert again.err.splitlines()[0] == "this project is configured already"
    assert path.read_text(encoding="utf-8") == text


def test_the_workflow_runs_the_gate_and_is_written_once(opcheck: CommandLine) -> None:
    shown = opcheck("init", "--workflow", "--print", "--model", "timm:resnet18")
    assert "opcheck gate -f github" in shown.out
    assert not list(Path().iterdir())
    assert opcheck("init", "--workflow", "--model", "timm:resnet18").code == 0
    path = Path(".github/workflows/opcheck.yml")
    steps = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]["gate"]["steps"]
    runs = "\n".join(step.get("run", "") for step in steps)
    assert "opcheck gate -f github" in runs
    assert all("--torch-backend=cpu" in line for line in runs.splitlines() if "[torch]" in line)
    assert steps[-1]["with"]["sarif_file"] == "opcheck.sarif"
    assert all(len(step["uses"].partition("@")[2]) == 40 for step in steps if "uses" in step)
    Path("opcheck.toml").unlink()
    assert opcheck("init", "--workflow", "--model", "timm:resnet18").code == 2


def test_a_gate_without_a_table_offers_it(opcheck: CommandLine) -> None:
    result = opcheck("gate")
    assert result.code == 2
    assert "opcheck init writes the table" in result.err


@pytest.mark.parametrize(
    "before", [b'[project]\r\nname = "mine"\r\n', b'[project]\nname = "mine"', b"\n# nothing yet  \n\n\n", b""]
)
def test_a_pyproject_keeps_its_bytes(opcheck: CommandLine, before: bytes) -> None:
    path = Path("pyproject.toml")
    path.write_bytes(before)
    path.chmod(0o640)
    assert opcheck("init", "--model", "timm:resnet18").code == 0
    after = path.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\r\n") == (after.count(b"\n") if b"\r" in before else 0)
    assert path.stat().st_mode & 0o777 == 0o640
    assert config.table(Path.cwd())[0]["models"]


@pytest.mark.parametrize("name", ["pyproject.toml", ".github", ".github/workflows"])
def test_a_link_out_of_the_project_is_not_written_through(
    opcheck: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / name).parent.mkdir(parents=True)
    outside.mkdir()
    if name == "pyproject.toml":
        (outside / name).write_text("")
    (project / name).symlink_to(outside / name if name == "pyproject.toml" else outside)
    monkeypatch.chdir(project)
    result = opcheck("init", "--workflow", "--model", "timm:resnet18")
    assert result.code == 2
    assert "leads out of its folder" in result.err
    assert not [path for path in outside.rglob("*") if path.is_file() and path.read_bytes()]
