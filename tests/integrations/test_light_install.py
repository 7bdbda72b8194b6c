"""What works where neither torch nor numpy is installed: everything that runs no model."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_path("purelib"))
#: What the requirements of the core import, beside themselves.
BENEATH = ("_yaml", "markupsafe", "mdurl", "pygments")
MODULES = {"pyyaml": "yaml", "markdown-it-py": "markdown_it"}

PROGRAM = "import torch\nx = torch.ones(3).cuda()\n"
LOG = (
    "model.py:3: UserWarning: The operator 'aten::linalg_qr.out' is not currently supported on the "
    "MPS backend and will fall back to run on the CPU. This may have performance implications.\n"
)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the core's requirements, and nothing else that is installed."""
    folder = tmp_path_factory.mktemp("site")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {Requirement(text).name for text in project["dependencies"]} - {"tomli"}
    for name in (*(MODULES.get(name, name) for name in core), *BENEATH):
        (folder / name).symlink_to(SITE / name)
    (folder / "opcheck").symlink_to(ROOT / "opcheck")
    # Where the data lies beside the package, as in a checkout.
    for name in ("op_lists", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture
def opcheck(installed: Path, tmp_path: Path) -> Run:
    """Runs the command line with these packages alone, in a folder with a program and a log."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "run.log").write_text(LOG, encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-P", "-m", "opcheck", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
        )

    return run


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("op", "torch.linalg.svd"), 0, "torch.linalg.svd: native"),
        (("history", "aten::linalg_svd"), 0, "aten::linalg_svd"),
        (("diff", "2.14", "2.15", "-f", "json"), 0, '"before"'),
        pytest.param(("matrix", "--torch", "2.13", "-f", "csv"), 0, "aten::mm", marks=pytest.mark.slow),
        (("explain", "OC102"), 0, "OC102"),
        (("scan", "program.py"), 1, "OC201"),
        (("lists", "info"), 0, "2.13"),
        (("lists", "lint"), 0, ""),
        (("observe", "run.log"), 0, "aten::linalg_qr.out"),
        (("site", "build", "--help"), 0, "--output"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_verb_that_runs_no_model_needs_no_torch(
    opcheck: Run, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    done = opcheck(*arguments)
    assert (done.returncode, done.stderr.count("Traceback")) == (code, 0), done.stderr
    assert expected in done.stdout


def test_the_doctor_names_the_missing_torch(opcheck: Run) -> None:
    done = opcheck("doctor")
    assert done.returncode in {0, 1}
    assert "torch" in done.stdout
