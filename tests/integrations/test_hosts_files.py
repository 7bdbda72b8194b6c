"""Where opcheck comes from: an index by uvx, conda, a container, and the forms of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomllib
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from opcheck.common.tool import VERSION
from tests.integrations.runner import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def test_the_conda_recipe_has_the_requirements_of_the_package() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == VERSION
    run = {Requirement(text).name: str(Requirement(text).specifier) for text in recipe["requirements"]["run"]}
    own = {Requirement(text).name: str(Requirement(text).specifier) for text in PROJECT["dependencies"]}
    assert run.pop("python") == ">=3.10"
    assert run == own
    for name in ("README.md", "LICENSE"):
        assert (ROOT / "packaging/conda" / recipe["source"]["path"] / name).exists()


def test_the_container_copies_what_the_package_is_built_of() -> None:
    lines = (ROOT / "packaging/Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert {"pyproject.toml", "hatch_build.py", "opcheck", "op_lists", "docs/rules"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    # A model that is audited there is a stranger's.
    assert lines.index("USER opcheck") < next(n for n, line in enumerate(lines) if line.startswith("ENTRYPOINT"))


def test_the_package_declares_the_pythons_that_torch_has_macos_wheels_for() -> None:
    table = yaml.safe_load((ROOT / "op_lists/pythons.yaml").read_text())["pythons"]
    declared = SpecifierSet(PROJECT["requires-python"])
    newest = [name for name, span in table.items() if span["until"] is None]
    assert {"3.14", "3.15"} <= set(newest)
    for name in newest:
        assert declared.contains(f"{name}.0"), name
        assert f"Programming Language :: Python :: {name}" in PROJECT["classifiers"]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["cff-version"], citation["version"], citation["license"]) == ("1.2.0", VERSION, PROJECT["license"])
    assert {"message", "title", "authors", "repository-code"} <= citation.keys()


@pytest.mark.parametrize("form", [form for form in FORMS if form.name != "config.yml"], ids=lambda form: form.stem)
def test_a_form_has_what_githubs_schema_asks_for(form: Path) -> None:
    content = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= content.keys()
    ids = [field["id"] for field in content["body"] if field["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    for field in content["body"]:
        assert field["type"] in {"markdown", "input", "textarea", "dropdown", "checkboxes"}
        assert field["attributes"].get("label") or field["type"] == "markdown"


def test_a_wrong_prediction_is_reported_with_both_files() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/prediction.yml").read_text())
    required = {f["id"] for f in form["body"] if f.get("validations", {}).get("required")}
    assert {"predicted", "observed", "command"} <= required
    help_text = subprocess.run(
        [sys.executable, "-m", "opcheck", "verify", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "--here" in help_text
    assert "--program" in help_text


@pytest.mark.slow
def test_uvx_runs_the_wheel(tmp_path: Path) -> None:
    """What the README promises of ``uvx opcheck op svd``, with the wheel of this checkout."""
    if find_spec("uv") is None:
        pytest.skip("uv is not installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    command = [sys.executable, "-m", "uv", "tool", "run", "--python", sys.executable, "--from", str(wheel)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["UV_TOOL_DIR"] = str(tmp_path / "tools")
    done = subprocess.run(
        [*command, "opcheck", "op", "svd"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode and "Failed to fetch" in done.stderr:
        pytest.skip("no package index")
    assert done.returncode == 0, done.stderr
    assert re.match(r"(torch\.)?(linalg\.)?svd: ", done.stdout)
    assert "uvx opcheck op svd" in (ROOT / "README.md").read_text()
    shutil.rmtree(tmp_path / "tools", ignore_errors=True)
