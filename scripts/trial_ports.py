"""Try programs that were written for CUDA: how far ``opcheck run`` comes, before and after ``opcheck scan --fix``.

    python scripts/trial_ports.py --copies DIR [--limit SECONDS] [--write]

``scripts/trial.yaml`` has the programs; DIR holds copies of their repositories, ``OWNER+NAME/repo``.  Each program
runs three times on the emulated Mac: as it is, after ``--fix``, and after ``--fix --unsafe-fixes``; a run is repeated
only if something in the repository was changed.  With ``--write`` the table goes to ``reports/port_trial.md``.  Nothing
of the programs is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from opcheck.common.versions import Target, Version
from opcheck.source.fixing import fix

PROGRAMS = Path(__file__).with_name("trial.yaml")
PAGE = Path(__file__).parents[1] / "reports" / "port_trial.md"
TARGET = Target(torch=Version(2, 15), macos=Version(26))
HEAD = """# Programs for CUDA, before and after `opcheck scan --fix`

Public programs that were written for CUDA, run by `opcheck run` on an emulated Mac (torch 2.15, macOS 26): as they are,
after `--fix`, and after `--fix --unsafe-fixes`. A cell says how many operator calls on `mps` the run had, and how it
ended. A program that ends without a call on `mps` ran on the CPU, or did not come so far. The commits are in
`scripts/trial.yaml`; `scripts/trial_ports.py` wrote this page. Nothing was observed on a Mac.

"""


class Run(NamedTuple):
    """How far a program ran."""

    calls: int
    ended: str

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.ended}"


def main() -> None:
    """Run the programs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=Path, required=True, metavar="DIR")
    parser.add_argument("--limit", type=int, default=120, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--only", default="", metavar="TEXT", help="programs of these repositories")
    parser.add_argument("--write", action="store_true", help="write reports/port_trial.md")
    args = parser.parse_args()
    programs = [
        program
        for program in yaml.safe_load(PROGRAMS.read_text(encoding="utf-8"))["programs"]
        if args.only in program["repository"]
    ]
    copies = [
        args.copies / program["repository"].replace("/", "+") / "repo" for program in programs
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = [
            pool.submit(_try, program, copy, args.limit)
            for program, copy in zip(programs, copies, strict=True)
            if copy.is_dir()
        ]
        rows = []
        for future in futures:
            rows.append(future.result())
            print("; ".join(map(str, rows[-1])), flush=True)
    text = HEAD + _table(rows)
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


def _try(program: dict[str, str], copy: Path, limit: int) -> tuple[str, Run, Run, Run]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "program")
        _write(copy, program["commit"], root)
        arguments = shlex.split(program["call"])
        before = _run(arguments, root, limit)
        safe = _run(arguments, root, limit) if _fix(root, unsafe=False) else before
        unsafe = _run(arguments, root, limit) if _fix(root, unsafe=True) else safe
    return f"{program['repository']} `{program['call']}`", before, safe, unsafe


def _write(copy: Path, commit: str, root: Path) -> None:
    """Write the files of a commit that are no data."""
    git = ["git", "-C", str(copy)]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", commit], capture_output=True, check=True
    ).stdout
    for name in listed.decode("utf-8", "replace").split("\n"):
        if not name.endswith((".py", ".txt", ".toml", ".json", ".yaml", ".yml")) or name.startswith(
            '"'
        ):
            continue
        content = subprocess.run(
            [*git, "show", f"{commit}:{name}"], capture_output=True, check=False
        )
        if content.returncode == 0:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.stdout)


def _fix(root: Path, *, unsafe: bool) -> bool:
    """Correct a repository; return whether anything changed."""
    fixed = fix([str(root)], TARGET, unsafe=unsafe)
    for change in fixed.changes:
        change.path.write_bytes(change.contents()[1])
    return bool(fixed.changes)


def _run(arguments: list[str], root: Path, limit: int) -> Run:
    """Run a program on the emulated Mac."""
    report = root.parent / "report.json"
    report.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "opcheck",
        "run",
        "--torch",
        "2.15",
        "--macos",
        "26",
        "-o",
        str(report),
        *arguments,
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
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
        return Run(_calls(report), f"still running after {limit} s")
    errors = [
        line for line in done.stderr.decode("utf-8", "replace").split("\n") if _is_error(line)
    ]
    return Run(_calls(report), _short(errors[-1]) if errors else "to the end")


def _is_error(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and name.endswith(("Error", "Exception")) and " " not in name


def _short(error: str) -> str:
    return error[:90].replace("|", "\\|").replace("`", "'")


def _calls(report: Path) -> int:
    if not report.is_file():
        return 0
    content: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return sum(group.get("count", 1) for group in content.get("calls", []))


def _table(rows: list[tuple[str, Run, Run, Run]]) -> str:
    ended = [
        Counter(run.ended == "to the end" and run.calls > 0 for run in column)[True]
        for column in zip(*(r[1:] for r in rows), strict=True)
    ]
    headline = (
        f"Of {len(rows)} programs run to the end on `mps`: {ended[0]} as they are, {ended[1]} after `--fix`, "
        f"{ended[2]} after `--fix --unsafe-fixes`.\n"
    )
    lines = [
        headline,
        "| program | as it is | after --fix | after --fix --unsafe-fixes |",
        "| --- | --- | --- | --- |",
        *(f"| {name} | {before} | {safe} | {unsafe} |" for name, before, safe, unsafe in rows),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
