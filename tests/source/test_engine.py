"""Files, notebooks, requirements, ignores, and what cannot be read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError, UsageError
from opcheck.data.packages import PACKAGES
from opcheck.source.engine import scan
from opcheck.source.scan_records import ScanReport
from tests.source.reading import TARGET, report


def scanned(directory: Path) -> ScanReport:
    return scan([str(directory)], TARGET)


def places(result: ScanReport, directory: Path) -> list[tuple[str, str]]:
    prefix = f"{directory.as_posix()}/"
    return [(finding.rule, str(finding.locations[0].location).removeprefix(prefix)) for finding in result.findings]


def test_a_finding_says_where_it_begins_and_where_it_is_used(tmp_path: Path) -> None:
    result = report(tmp_path, a="import torch\ndef f():\n    d = 'cuda'\n    x.to(d)\n    y.to(d)\n")
    (finding,) = result.findings
    lines = [place.location.line for place in finding.locations if place.location]
    assert (lines, finding.count) == ([3, 4, 5], 2)
    location = finding.locations[0].location
    assert location is not None
    assert (location.function, location.text) == ("f", "d = 'cuda'")
    assert result.totals == {"error": 1, "warning": 0, "note": 0}


def test_an_ignore_is_honoured_on_each_line_of_the_code(tmp_path: Path) -> None:
    result = report(
        tmp_path,
        a="""
        x.cuda()  # opcheck: ignore[OC201] runs on the cluster
        model.to(
            device="cuda",  # opcheck: ignore[OC202, OC201] the same
        )
        text = "# opcheck: ignore[OC201] no comment"
        y.cuda()  # opcheck: ignore[oc201]
        """,
    )
    assert result.ignored == 3
    assert places(result, tmp_path) == [("OC221", "a.py:4"), ("OC220", "a.py:7")]
    assert "OC201" in result.findings[0].message


def test_the_cells_of_a_notebook_are_one_program(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": "x.cuda()"},
        {"cell_type": "code", "source": ["import torch\n", "%matplotlib inline\n", "d = 'cuda'"]},
        {"cell_type": "code", "source": "!pip install \\\n  torch\nx.to(d)\nawait z\ntorch?"},
        {"cell_type": "code", "source": "%%bash\nfor x in y; do"},
        {"cell_type": "code", "source": "%%time\nx.cuda()"},
        {"cell_type": "code", "source": "if x:\n"},
        {"cell_type": "code", "source": "y.cuda()"},
    ]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    result = scanned(tmp_path)
    assert places(result, tmp_path) == [
        ("OC202", "n.ipynb#cell-2:3"),
        ("OC201", "n.ipynb#cell-5:2"),
        ("OC201", "n.ipynb#cell-7:1"),
    ]
    assert str(result.findings[0].locations[1].location).endswith("/n.ipynb#cell-3:3")
    assert [problem.kind for problem in result.problems] == ["syntax_error"]
    assert result.read["notebook"] == 1


def test_a_notebook_of_the_old_form(tmp_path: Path) -> None:
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x.cuda()"]}]}]}
    (tmp_path / "n.ipynb").write_text(json.dumps(old), encoding="utf-8")
    assert places(scanned(tmp_path), tmp_path) == [("OC201", "n.ipynb#cell-1:1")]


def test_requirements_are_judged_as_pip_on_a_mac_would(tmp_path: Path) -> None:
    (tmp_path / "requirements-dev.txt").write_text(
        "torch\n"
        "flash_attn==2.5\n"
        'triton; sys_platform == "linux"\n'
        "bitsandbytes==0.42.0\n"
        "bitsandbytes>=0.42\n"
        "nvidia-cublas-cu12==12.1\n"
        "-r other.txt\n"
        "xformers  # opcheck: ignore[OC214] for the cluster\n"
        "git+https://example.org/x.git\n"
        "torch==2.1.2+cu118\n"
        "torch==2.1.2+cpu\n"
        "onnxruntime-gpu\n"
        "deepspeed>=0.16\n",
        encoding="utf-8",
    )
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = [\n  "numpy",\n  "flash-attn>=2",\n]\n'
        '[project.optional-dependencies]\nfast = ["vllm"]\n',
        encoding="utf-8",
    )
    result = scanned(tmp_path)
    assert [place for _, place in places(result, tmp_path)] == [
        "pyproject.toml:4",
        "pyproject.toml:7",
        "requirements-dev.txt:2",
        "requirements-dev.txt:4",
        "requirements-dev.txt:6",
        "requirements-dev.txt:10",
        "requirements-dev.txt:12",
        "requirements-dev.txt:13",
    ]
    severities = [finding.severity for finding in result.findings]
    assert severities == ["error", "warning", *["error"] * 5, "warning"]
    assert result.ignored == 1


def test_a_package_of_the_project_itself_is_no_finding(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("import triton.model\nimport apex\n", encoding="utf-8")
    assert places(scanned(tmp_path), tmp_path) == [("OC214", "sub/a.py:2")]


BAD = {
    "syntax_error": b"def f(:\n",
    "python2": b"print 'x'\n",
    "undecodable": b"# caf\xe9\n",
    "unreadable encoding": b"# -*- coding: no-such -*-\n",
    "null byte": b"x = 1\0\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_and_the_others_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_bytes(BAD[name])
    (tmp_path / "b.py").write_text("x.cuda()\n", encoding="utf-8")
    result = scanned(tmp_path)
    assert places(result, tmp_path) == [("OC201", "b.py:1")]
    (problem,) = result.problems
    assert problem.module.endswith("/a.py")
    expected = {"unreadable encoding": "undecodable", "null byte": "syntax_error"}
    assert problem.kind == expected.get(name, name)


def test_deep_code_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"x = {' + '.join(['1'] * 40_000)}\n", encoding="utf-8")
    (tmp_path / "b.py").write_text(f"x = {'(' * 400}1{')' * 400}\n", encoding="utf-8")
    assert {problem.kind for problem in scanned(tmp_path).problems} <= {"syntax_error", "too_deep"}
    assert scanned(tmp_path).problems


def test_large_and_damaged_files_are_named(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no named pipes in folders")
    (tmp_path / "a.py").write_bytes(b"#" * 2_000_001)
    (tmp_path / "b.ipynb").write_text("[", encoding="utf-8")
    (tmp_path / "c.ipynb").write_text('{"cells": [3]}', encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[", encoding="utf-8")
    os.mkfifo(tmp_path / "d.py")
    kinds = [problem.kind for problem in scanned(tmp_path).problems]
    assert kinds == ["too_large", "damaged_notebook", "damaged_notebook", "not_a_file", "syntax_error"]


def test_links_are_not_followed_and_hidden_directories_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x.cuda()\n", encoding="utf-8")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.py").write_text("x.cuda()\n", encoding="utf-8")
    result = scanned(tmp_path)
    assert len(result.findings) == 1
    assert result.skipped == {"hidden, built or installed directories": 1, "links to directories": 1}
    assert [problem.kind for problem in result.problems] == ["not_a_file"]


def test_there_must_be_something_to_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Python source"):
        scanned(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        scanned(tmp_path / "nothing")


def test_a_damaged_table_of_packages_names_its_lines(tmp_path: Path) -> None:
    (tmp_path / "packages.yaml").write_text("schema: 1\npackages:\n  a: {date: 1}\n", "utf-8")
    with pytest.raises(OpListError, match=r"packages\.yaml"):
        PACKAGES.load(tmp_path)


def test_every_package_says_since_when_and_why() -> None:
    for name, package in PACKAGES.load().by_name.items():
        # Without names: its module comes with another package on a Mac, too.
        assert package.imports or package.instead, name
        assert package.evidence, name
        assert package.date.startswith("20"), name


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("tinycudann", "tinycudann has no wheel for macOS: pip does not install it on a Mac"),
        ("MinkowskiEngine>=0.5", "minkowskiengine has no wheel for macOS: pip does not install it on a Mac"),
        (
            "diff-gaussian-rasterization",
            "diff-gaussian-rasterization has no wheel for macOS: pip does not install it on a Mac",
        ),
        ("autoawq==0.2.7", "autoawq needs triton, which has no wheel for macOS: pip does not install it on a Mac"),
        ("nvidia_ml_py", "nvidia-ml-py installs on a Mac and fails there: nvmlInit raises NVMLError_LibraryNotFound"),
    ],
)
def test_a_required_package_is_named_by_what_a_mac_makes_of_it(tmp_path: Path, requirement: str, message: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch\n{requirement}\n", encoding="utf-8")
    (finding,) = scan([str(tmp_path)], TARGET).findings
    assert (finding.rule, finding.message) == ("OC214", message)
    installs = "installs" in message
    assert finding.severity == ("warning" if installs else "error")
    assert (finding.fix == "safe") is not installs


def test_an_import_that_works_on_a_mac_leaves_the_handler_unreached(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch\ntry:\n    import pynvml\nexcept ImportError:\n    pass\nelse:\n    x.cuda()\n"
    )
    (tmp_path / "b.py").write_text(
        "import torch\ntry:\n    import xformers\n    x.cuda()\nexcept ImportError:\n    pass\n"
    )
    rules = [finding.rule for finding in scan([str(tmp_path)], TARGET).findings]
    assert rules == ["OC214", "OC201"]
