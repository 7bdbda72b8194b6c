"""Hold the fixes of ``opcheck scan`` against the own tests of public projects: do they compile, pass and ask the same?

    python -m scripts.prove_fixes --copies DIR [--packages DIR] [--limit SECONDS] [--only NAME] [--write]

``scripts/proofs.yaml`` has the projects, ``--copies`` their repositories, ``OWNER+NAME/repo``, and ``--packages``
what their tests import beside torch.  The tests run on the CPU, and under a torch that behaves as if there were CUDA
(``fake_cuda.py``): as the project is, after ``--fix``, and after ``--fix --unsafe-fixes``.  Each run has a temporary
home and no network.  With ``--write`` the table goes to ``reports/port_proof.md``.  Nothing of the projects is kept.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import yaml

from scripts.copies import apply_fixes, copy_of, trial_parser, write_commit
from scripts.pages import ROOT, narrow_table, page_text

PROJECTS = Path(__file__).with_name("proofs.yaml")
PAGE = ROOT / "reports" / "port_proof.md"
_FILES = (".py", ".txt", ".toml", ".cfg", ".ini", ".json", ".csv", ".yaml", ".yml", ".md")
_FIXED = ("after --fix", "after --unsafe-fixes")
HEADERS = ("project", "fixed", "with unsafe", "files that compile", "CPU", *_FIXED, "fake CUDA", *_FIXED)


class Outcome(NamedTuple):
    """What the tests of a project did."""

    #: passed, failed or skipped, by test
    tests: dict[str, str]
    #: how often each device was asked for
    devices: dict[str, int]

    def __str__(self) -> str:
        passed = sum(outcome == "passed" for outcome in self.tests.values())
        return f"{passed} of {len(self.tests)} pass"


class Row(NamedTuple):
    """A project: what was changed, and whether its tests noticed."""

    name: str
    #: how many findings were corrected, by --fix and with --unsafe-fixes
    fixed: tuple[int, int]
    #: how many changed files do not compile
    broken: int
    #: on the CPU and with CUDA: before, after --fix, after --unsafe-fixes
    cpu: list[Outcome]
    cuda: list[Outcome]


def main() -> None:
    """Run the tests, print the table."""
    args = trial_parser(__doc__, PAGE, limit=300).parse_args()
    projects = yaml.safe_load(PROJECTS.read_text(encoding="utf-8"))["projects"]
    rows = []
    for project in projects:
        copy = copy_of(args.copies, project["repository"])
        if not copy.is_dir() or args.only not in project["repository"]:
            continue
        rows.append(_cells(_try(project, copy, args.packages, args.limit)))
        print(f"| {' | '.join(rows[-1])} |", flush=True)
    if args.write:
        PAGE.write_text(page_text("port_proof") + narrow_table(HEADERS, rows) + "\n", encoding="utf-8")


def _try(project: dict[str, str], copy: Path, packages: str, limit: int) -> Row:
    cpu: list[Outcome] = []
    cuda: list[Outcome] = []
    fixed, broken = [0, 0], 0
    for number, way in enumerate(("as it is", "safe", "unsafe")):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "project")
            write_commit(copy, project["commit"], root, _FILES)
            if way != "as it is":
                result = apply_fixes(root, unsafe=way == "unsafe")
                fixed[number - 1] = sum(result.fixed.values())
                broken += sum(not _compiles(change.path) for change in result.changes)
                if not result.changes:
                    cpu.append(cpu[-1])
                    cuda.append(cuda[-1])
                    continue
            tests = shlex.split(project["tests"])
            cpu.append(_run(root, tests, packages, limit, fake=False))
            cuda.append(_run(root, tests, packages, limit, fake=True))
    return Row(project["repository"], (fixed[0], fixed[1]), broken, cpu, cuda)


def _compiles(path: Path) -> bool:
    if path.suffix != ".py":
        return True
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _run(root: Path, tests: list[str], packages: str, limit: int, *, fake: bool) -> Outcome:
    """Run tests without a network, in a home of their own."""
    results, log = root.parent / "results.xml", root.parent / "devices.json"
    for path in (results, log):
        path.unlink(missing_ok=True)
    options = "-q -p no:cacheprovider -p no:xdist -o addopts= " + "-p fake_cuda" * fake
    command = [sys.executable, "-m", "pytest", *options.split(), f"--junitxml={results}", *tests]
    (root.parent / "home").mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(root.parent / "home"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), str(Path(__file__).parent), packages))),
        "FAKE_CUDA_LOG": str(log),
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "HF_HUB_OFFLINE": "1",
    }
    subprocess.run(
        ["timeout", str(limit), "unshare", "-rn", *command],  # noqa: S607  (programs of the system)
        cwd=root,
        env=environment,
        capture_output=True,
        check=False,
    )
    devices = json.loads(log.read_text(encoding="utf-8")) if log.is_file() else {}
    return Outcome(_outcomes(results), devices)


def _outcomes(results: Path) -> dict[str, str]:
    """The outcome of each test."""
    if not results.is_file():
        return {}
    cases = ET.parse(results).getroot().iter("testcase")  # noqa: S314  (pytest wrote it a moment ago)
    return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ET.Element) -> str:
    return next((part.tag for part in case if part.tag in {"failure", "error", "skipped"}), "passed")


def _cells(row: Row) -> list[str]:
    cells = [row.name, str(row.fixed[0]), str(row.fixed[1]), "all" if not row.broken else f"all but {row.broken}"]
    for outcomes in (row.cpu, row.cuda):
        before, *after = outcomes
        cells += [str(before), *(_compared(before, each) for each in after)]
    return cells


def _compared(before: Outcome, after: Outcome) -> str:
    different = [name for name in {**before.tests, **after.tests} if before.tests.get(name) != after.tests.get(name)]
    if not before.tests:
        return "did not run"
    if different:
        return f"{len(different)} differ: {', '.join(sorted(different)[:2])}"
    changed = (
        f"{name} {before.devices.get(name, 0)} -> {after.devices.get(name, 0)}"
        for name in sorted({*before.devices, *after.devices})
        if before.devices.get(name) != after.devices.get(name)
    )
    devices = ", ".join(changed)
    return f"same, other devices: {devices}" if devices else "same"


if __name__ == "__main__":
    main()
