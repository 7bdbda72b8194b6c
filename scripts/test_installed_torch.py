"""Run the tests against other installed torch releases, each in an environment of its own.

    python scripts/test_installed_torch.py [RELEASE ...] [-- PYTEST_ARGUMENT ...]

An environment takes two minutes and about 7 GB, since the Linux build of torch comes with CUDA; it imports
without a GPU.  The environments are kept in ``~/.cache/opcheck/torch`` and taken again: delete a
folder to have it made again.
"""

import argparse
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tabulate import tabulate

from opcheck.common.versions import Version
from opcheck.data.registrations import load

ROOT = Path(__file__).parents[1]
CACHE = Path.home() / ".cache" / "opcheck" / "torch"

#: The oldest and the newest whose twins were compared with the C++; ``make test`` runs the one between.
RELEASES = ("2.9.1", "2.15.0")

_INSTALLED = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"


class Row(NamedTuple):
    """What the tests said under one release."""

    torch: str
    torchvision: str = ""
    transformers: str = ""
    passed: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: int = 0
    result: str = "not installed"


def main() -> int:
    """Test under each release in turn; 0 only if all of them are green."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="such as 2.9.1")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    rows = []
    for release in parser.parse_args(sys.argv[1:at]).releases or RELEASES:
        try:
            python = environment(release, CACHE / release)
            record = CACHE / release / "tests.xml"
            rows.append(tests(release, python, record, sys.argv[at + 1 :]))
        except subprocess.CalledProcessError as error:
            print(f"torch {release}: {error}", file=sys.stderr)
            rows.append(Row(release))
    print(tabulate(rows, headers=[name.replace("_", " ") for name in Row._fields]))
    return 0 if all(row.result == "green" for row in rows) else 1


def environment(release: str, place: Path) -> str:
    """The Python of an environment that holds the release, opcheck and what the tests need.

    Raises:
        subprocess.CalledProcessError: something could not be installed.
    """
    python = str(place / "bin" / "python")
    ready = place / "ready"
    made = ready.exists()
    if not made:
        venv.create(place, with_pip=True, clear=True)
    constraints = place / "constraints.txt"
    constraints.write_text(_constraints(), encoding="utf-8")
    constrained = ["--constraint", str(constraints)]
    pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile"]
    steps = (
        # As in the Makefile: torch first and alone, so that nothing later replaces it.
        [f"torch=={release}"],
        ["--no-deps", f"torchvision=={torchvision_for(release)}"],
        [*constrained, "hatchling"],
        # Always: the dependencies and entry points of pyproject.toml may have changed.
        [*constrained, "--no-build-isolation", "--editable", f"{ROOT}[models,site,sweep,wheels,dev]"],
    )
    for wanted in steps[-1:] if made else steps:
        subprocess.run([*pip, *wanted], check=True)
    ready.touch()
    return python


def torchvision_for(release: str) -> str:
    """The torchvision that was released with this torch, or the newest one before it."""
    line = Version.parse(release)
    known = load().extensions.releases["torchvision"]
    return max(
        (each for each in known if Version.parse(each.torch_line) <= line),
        key=lambda each: Version.parse(each.torch_line),
    ).version


def _constraints() -> str:
    """What ``make test`` installs, but for torch and torchvision themselves."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("torch==", "torchvision==")))


def tests(release: str, python: str, record: Path, arguments: list[str]) -> Row:
    """Run pytest there; what it printed has been printed."""
    torchvision, transformers = subprocess.run(
        [python, "-c", _INSTALLED, "torchvision", "transformers"], check=True, capture_output=True, text=True
    ).stdout.split()
    record.unlink(missing_ok=True)
    quiet = ["-q", "-p", "no:cacheprovider", f"--junit-xml={record}"]
    start = time.monotonic()
    done = subprocess.run(
        [python, "-m", "pytest", *quiet, *arguments], check=False, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    counts = _counts(record)
    return Row(
        release,
        torchvision,
        transformers,
        passed=counts["tests"] - counts["skipped"] - counts["failures"] - counts["errors"],
        skipped=counts["skipped"],
        failed=counts["failures"] + counts["errors"],
        seconds=round(time.monotonic() - start),
        result="green" if done.returncode == 0 else f"pytest exited with {done.returncode}",
    )


def _counts(record: Path) -> dict[str, int]:
    names = ("tests", "skipped", "failures", "errors")
    if not record.exists():  # pytest itself died
        return dict.fromkeys(names, 0)
    suite = ET.parse(record).getroot().find("testsuite")  # noqa: S314 - pytest wrote it a moment ago
    return {name: int(suite.get(name, 0)) if suite is not None else 0 for name in names}


if __name__ == "__main__":
    sys.exit(main())
