"""Try programs that were written for CUDA: how far ``opcheck run`` comes, before and after ``opcheck scan --fix``.

    python -m scripts.trial_ports --copies DIR [--packages DIR] [--limit SECONDS] [--write]

``scripts/trial.yaml`` has the programs; DIR holds copies of their repositories, ``OWNER+NAME/repo``.  Each program
runs three times on the emulated Mac: as it is, after ``--fix``, and after ``--fix --unsafe-fixes``; a run is repeated
only if something in the repository was changed.  With ``--write`` the table goes to ``reports/port_trial.md``.  Nothing
of the programs is kept.
"""

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

from scripts.copies import apply_fixes, copy_of, trial_parser, write_commit
from scripts.pages import ROOT, narrow_table, page_text

#: The endings of files that are no data.
_FILES = (".py", ".txt", ".toml", ".json", ".yaml", ".yml")
PROGRAMS = Path(__file__).with_name("trial.yaml")
PAGE = ROOT / "reports" / "port_trial.md"
#: what opcheck prints of a program that failed
_EXIT_CODE = re.compile(rb"the program itself ended with exit code (\d+)")


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
    parser = trial_parser(__doc__, PAGE, limit=120)
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="rows that are not run again, and the new ones")
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
    safe = safe if apply_fixes(safe, unsafe=False).changes else before
    shutil.copytree(safe, unsafe)
    return before, safe, unsafe if apply_fixes(unsafe, unsafe=True).changes else safe


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
    headers = ("program", "as it is", "after --fix", "after --fix --unsafe-fixes")
    ended = {
        name: sum(run.ended == "to the end" and bool(run.calls) for run in (getattr(row, name) for row in cuda_only))
        for name in ("before", "safe", "unsafe")
    }
    return page_text(
        "port_trial, tables",
        cuda_only=len(cuda_only),
        cuda_only_table=narrow_table(headers, cuda_only),
        others=len(others),
        others_table=narrow_table(headers, others),
        **ended,
    )


if __name__ == "__main__":
    main()
