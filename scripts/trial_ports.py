"""Try programs that were written for CUDA: how far ``opcheck run`` comes, before and after ``opcheck scan --fix``.

    python -m scripts.trial_ports --copies DIR [--packages DIR] [--limit SECONDS] [--write]

``scripts/trial.yaml`` has the programs; DIR holds copies of their repositories, ``OWNER+NAME/repo``.  Each program
runs three times on the emulated Mac: as it is, after ``--fix``, and after ``--fix --unsafe-fixes``; a run is repeated
only if something in the repository was changed.  With ``--write`` the table goes to ``reports/port_trial.md``.  Nothing
of the programs is kept.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from opcheck.common.versions import Target, Version
from opcheck.source.fixing import fix
from scripts.copies import copy_of, write_commit
from scripts.pages import page_text

#: The endings of files that are no data.
_FILES = (".py", ".txt", ".toml", ".json", ".yaml", ".yml")
PROGRAMS = Path(__file__).with_name("trial.yaml")
PAGE = Path(__file__).parents[1] / "reports" / "port_trial.md"
#: what opcheck prints of a program that failed
_EXIT_CODE = re.compile(rb"the program itself ended with exit code (\d+)")
TARGET = Target(torch=Version(2, 15), macos=Version(26))


class Program(NamedTuple):
    """A program of the file: its repository, the commit, and the arguments of Python."""

    repository: str
    commit: str
    call: str

    def __str__(self) -> str:
        return f"{self.repository} `{self.call}`"


class Run(NamedTuple):
    """How far a program ran; of one that was stopped nobody knows the number of calls."""

    calls: int | None
    ended: str

    def __str__(self) -> str:
        return self.ended if self.calls is None else f"{self.calls} calls, {self.ended}"


class Row(NamedTuple):
    """A program, as it is and after the fixes."""

    program: str
    before: Run
    safe: Run
    unsafe: Run

    @property
    def wants_cuda(self) -> bool:
        """Whether the program, as it is, ends because there is no CUDA."""
        return any(text in self.before.ended for text in ("CUDA", "must be cuda device"))


def main() -> None:
    """Run the programs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=Path, default=Path(), metavar="DIR")
    parser.add_argument("--packages", default="", metavar="DIR", help="what they import beside torch")
    parser.add_argument("--limit", type=int, default=120, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose line has this text")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="rows that are not run again, and the new ones")
    parser.add_argument("--write", action="store_true", help="write reports/port_trial.md")
    args = parser.parse_args()
    programs = [Program(**program) for program in yaml.safe_load(PROGRAMS.read_text(encoding="utf-8"))["programs"]]
    kept = args.kept.read_bytes() if args.kept and args.kept.is_file() else b"{}"
    rows = msgspec.json.decode(kept, type=dict[str, Row])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        trees: dict[tuple[str, str], tuple[Path, Path, Path]] = {}
        futures = []
        for program in programs:
            copy = copy_of(args.copies, program.repository)
            key = (program.repository, program.commit)
            if str(program) in rows or args.only not in str(program) or not copy.is_dir():
                continue
            if key not in trees:
                trees[key] = _prepare(copy, program.commit, Path(folder, str(len(trees))))
            futures.append(pool.submit(_try, program, trees[key], args.packages, args.limit))
        for future in futures:
            row = future.result()
            rows[row.program] = row
            print("; ".join(map(str, row)), flush=True)
            if args.kept:
                args.kept.write_bytes(msgspec.json.encode(rows))
    text = page_text("port_trial") + _table([rows[str(program)] for program in programs if str(program) in rows])
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


def _prepare(copy: Path, commit: str, folder: Path) -> tuple[Path, Path, Path]:
    """Write a repository as it is, after ``--fix``, and after ``--unsafe-fixes``; an unchanged one stands for both."""
    before, safe, unsafe = folder / "before", folder / "safe", folder / "unsafe"
    write_commit(copy, commit, before, _FILES)
    shutil.copytree(before, safe)
    safe = safe if _fix(safe, unsafe=False) else before
    shutil.copytree(safe, unsafe)
    return before, safe, unsafe if _fix(unsafe, unsafe=True) else safe


def _try(program: Program, trees: tuple[Path, Path, Path], packages: str, limit: int) -> Row:
    runs: dict[Path, Run] = {}
    for tree in trees:
        if tree not in runs:
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder, "program")
                shutil.copytree(tree, root)
                runs[tree] = _run(shlex.split(program.call), root, packages, limit)
    before, safe, unsafe = (runs[tree] for tree in trees)
    return Row(str(program), before, safe, unsafe)


def _fix(root: Path, *, unsafe: bool) -> bool:
    """Correct a repository; return whether anything changed."""
    fixed = fix([str(root)], TARGET, unsafe=unsafe)
    for change in fixed.changes:
        change.path.write_bytes(change.contents()[1])
    return bool(fixed.changes)


def _run(arguments: list[str], root: Path, packages: str, limit: int) -> Run:
    """Run a program on the emulated Mac."""
    report = root.parent / "report.json"
    report.unlink(missing_ok=True)
    target = ["--torch", "2.15", "--macos", "26", "-o", str(report)]
    command = [sys.executable, "-m", "opcheck", "run", *target, *arguments]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), packages))),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Run(None, f"still running after {limit} s")
    errors = [line for line in done.stderr.decode("utf-8", "replace").split("\n") if _is_error(line)]
    if errors:
        return Run(_calls(report), _short(errors[-1]))
    failed = _EXIT_CODE.search(done.stdout + done.stderr)
    return Run(_calls(report), failed[0].decode() if failed else "to the end")


def _is_error(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and name.endswith(("Error", "Exception")) and " " not in name


def _short(error: str) -> str:
    error = re.sub(r"'/tmp/[^']*'", "a file", error)  # a name that is another one in each run
    return error[:90].replace("|", "\\|").replace("`", "'")


def _calls(report: Path) -> int:
    if not report.is_file():
        return 0
    content: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return sum(group.get("count", 1) for group in content.get("calls", []))


def _table(rows: Sequence[Row]) -> str:
    """The programs that end for want of CUDA, then the others."""
    cuda_only = [row for row in rows if row.wants_cuda]
    others = [row for row in rows if not row.wants_cuda]
    parts = [
        f"## {len(cuda_only)} programs for CUDA alone",
        "As they are, they end because there is no CUDA.",
        _ended(cuda_only),
        _rows(cuda_only),
        f"## {len(others)} other programs",
        "They end before they come to CUDA, or run on the CPU; they do not count above.",
        _rows(others),
    ]
    return "\n\n".join(parts) + "\n"


def _ended(rows: Sequence[Row]) -> str:
    before, safe, unsafe = (
        sum(run.ended == "to the end" and bool(run.calls) for run in column)
        for column in ([r.before for r in rows], [r.safe for r in rows], [r.unsafe for r in rows])
    )
    return (
        f"Of {len(rows)} programs run to the end on `mps`: {before} as they are, {safe} after `--fix`, "
        f"{unsafe} after `--fix --unsafe-fixes`."
    )


def _rows(rows: Sequence[Row]) -> str:
    lines = [
        "| program | as it is | after --fix | after --fix --unsafe-fixes |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
