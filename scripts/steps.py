"""Runs declared steps: a graph of commands with the files that they read and write (``steps.yaml``).

A step is up to date if the contents of what it reads, its command and the contents of what it writes are those of its
last successful run; ``build/steps.json`` keeps their digests.  A run that stopped goes on where it was.
"""

import hashlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import click
import msgspec
import networkx as nx

from opcheck.common.files import write_text
from opcheck.common.text import plural
from opcheck.common.yaml_text import load_shipped

ROOT = Path(__file__).parents[1]
STEPS = Path(__file__).with_name("steps.yaml")
STATE = Path("build", "steps.json")
#: The exit code by which a step says that a person must look.
_FINDINGS = 1
#: The check of a step that runs the step itself and puts its files back.
_ITSELF = "run"


class StepError(Exception):
    """The steps cannot be run as declared; the message says why."""


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of ``steps.yaml``, whose head explains the keys."""

    run: str
    check: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    review: str = ""
    findings: bool = False

    def command(self, values: Mapping[str, str], *, check: bool = False) -> tuple[str, ...]:
        """Return the words after ``python -m``, with the release in place of its name."""
        words = self.check if check and self.check != _ITSELF else self.run
        return tuple(word.format_map(values) for word in shlex.split(words))


class Outcome(NamedTuple):
    """How one step ended: ``up to date``, ``done``, ``to review``, ``stale``, ``not checked`` or ``failed``."""

    name: str
    state: str
    review: str = ""


def read_steps(path: Path = STEPS) -> dict[str, dict[str, Step]]:
    """Return the steps of each entry.

    Raises:
        msgspec.ValidationError: a step has an unknown key or a value of another type.
    """
    return msgspec.convert(load_shipped(path), dict[str, dict[str, Step]])


def order(steps: Mapping[str, Step]) -> list[str]:
    """Return the names of steps so that each follows those that write what it reads; otherwise as they are declared.

    Raises:
        StepError: two steps write the same file, a step follows an unknown one, or the steps form a cycle.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(steps)
    for name, step in steps.items():
        for other, earlier in steps.items():
            if name != other and _overlap(step.writes, earlier.writes):
                raise StepError(f"{name} and {other} write the same file")
            if name != other and (other in step.after or _overlap(step.reads, earlier.writes)):
                graph.add_edge(other, name)
        if unknown := set(step.after) - steps.keys():
            raise StepError(f"{name} follows an unknown step: {min(unknown)}")
    ranks = {name: rank for rank, name in enumerate(steps)}
    try:
        return list(nx.lexicographical_topological_sort(graph, key=ranks.__getitem__))
    except nx.NetworkXUnfeasible:
        cycle = [before for before, _ in nx.find_cycle(graph)]
        raise StepError(f"steps form a cycle: {' -> '.join([*cycle, cycle[0]])}") from None


def _overlap(paths: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether two lists name a file in common; ``*`` stands for a part of a file's name."""
    pairs = ((PurePath(path), PurePath(other)) for path in paths for other in others)
    return any(a in {b, *b.parents} or b in a.parents or a.match(str(b)) or b.match(str(a)) for a, b in pairs)


class Runner:
    """Runs the steps of one entry below a folder, and remembers the digests of those that succeeded."""

    def __init__(
        self,
        steps: Mapping[str, Step],
        values: Mapping[str, str],
        root: Path = ROOT,
        note: Callable[[str], None] = click.echo,
    ) -> None:
        self.steps, self.values, self.root, self.note = steps, values, root, note
        self.state: dict[str, list[str]] = {}
        path = root / STATE
        if path.is_file():
            self.state = json.loads(path.read_text(encoding="utf-8"))

    def run(self, names: Sequence[str], rest: Sequence[str] = (), *, again: bool = False) -> list[Outcome]:
        """Run what is out of date, in the order of ``names``; a failed step ends the run.

        Args:
            names: the steps.
            rest: words that each command gets at its end.
            again: run also what is up to date.
        """
        outcomes: list[Outcome] = []
        for number, name in enumerate(names, 1):
            step = self.steps[name]
            command = (*step.command(self.values), *rest)
            head = f"[{number}/{len(names)}] {name}"
            if not again and not rest and self.is_current(name):
                self.note(f"{head}: up to date")
                outcomes.append(Outcome(name, "up to date", step.review))
                continue
            self.note(f"{head}: python -m {shlex.join(command)}")
            start = time.monotonic()
            code = self._call(command)
            self.note(f"{head}: exit code {code} after {time.monotonic() - start:.0f} s")
            if code and not (step.findings and code == _FINDINGS):
                outcomes.append(Outcome(name, "failed"))
                break
            self._remember(name)
            outcomes.append(Outcome(name, "to review" if code else "done", step.review))
        return outcomes

    def check(self, names: Sequence[str]) -> list[Outcome]:
        """Run the checks of the steps, and leave their files as they are; without a check the digests decide."""
        outcomes = []
        for name in names:
            if self.steps[name].check:
                state = self._check(self.steps[name])
            elif self.steps[name].reads:
                state = "up to date" if self.is_current(name) else "not checked"
            else:
                state = "not checked"
            self.note(f"{name}: {state}")
            outcomes.append(Outcome(name, state))
        return outcomes

    def is_current(self, name: str) -> bool:
        """Return whether the step's command, inputs and outputs are those of its last successful run."""
        step = self.steps[name]
        return bool(step.reads) and self.state.get(self._key(name)) == self._digests(name)

    def _check(self, step: Step) -> str:
        """Run the check of a step, compare what the step writes with what was there, and put that back."""
        # A step may complete a page of the steps that it follows.
        earlier = (path for name in step.after for path in self.steps[name].writes)
        paths = (*step.writes, *earlier)
        before = {file: file.read_bytes() for file in list_files(self.root, paths)}
        try:
            code = self._call(step.command(self.values, check=True))
        finally:
            after = {file: file.read_bytes() for file in list_files(self.root, paths)}
            for file in after.keys() - before.keys():
                file.unlink()
            for file, content in before.items():
                if after.get(file) != content:
                    file.write_bytes(content)
        if code not in {0, _FINDINGS}:
            return "failed"
        return "stale" if code or before != after else "up to date"

    def _call(self, command: Sequence[str]) -> int:
        return subprocess.run([sys.executable, "-m", *command], cwd=self.root, check=False).returncode

    def _key(self, name: str) -> str:
        return f"python -m {shlex.join(self.steps[name].command(self.values))}"

    def _digests(self, name: str) -> list[str]:
        step = self.steps[name]
        return [digest(self.root, paths) for paths in (step.reads, step.writes)]

    def _remember(self, name: str) -> None:
        self.state[self._key(name)] = self._digests(name)
        path = self.root / STATE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(self.state, indent=1))


def list_files(root: Path, paths: Iterable[str]) -> Iterator[Path]:
    """Yield the files of files, folders and patterns; what is missing is left out."""
    for path in paths:
        folder = root / path
        for file in sorted(folder.rglob("*") if folder.is_dir() else root.glob(path)):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def digest(root: Path, paths: Iterable[str]) -> str:
    """Return the digest of the names and contents of files, folders and patterns."""
    result = hashlib.sha256()
    for file in list_files(root, paths):
        name = file.relative_to(root).as_posix().encode()
        content = hashlib.sha256(file.read_bytes()).digest()
        result.update(b"%d %s %s" % (len(name), name, content))
    return result.hexdigest()


def summary(outcomes: Sequence[Outcome], total: int) -> str:
    """Return the last lines of a run: how the steps ended, what a person must review, and how to go on."""
    lines = [f"{outcome.name} failed; correct the cause, and the same command goes on from there"
             for outcome in outcomes if outcome.state == "failed"]  # fmt: skip
    if reviews := [outcome for outcome in outcomes if outcome.review]:
        lines += ["", "A person must review:", *(f"  {each.name}: {each.review}" for each in reviews)]
    done = sum(outcome.state != "failed" for outcome in outcomes)
    return "\n".join([f"{done} of {plural(total, 'step')} ended", *lines])
