"""Tries a program on this machine's CPU and on the emulated Mac of its target.  Imports no torch."""

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from opcheck.common.errors import OpcheckError, UsageError
from opcheck.common.text import filesize
from opcheck.data.extensions import LIBRARIES
from opcheck.data.registrations import load
from opcheck.model.records import CallGroup, Record
from opcheck.reproducer.chosen import ChosenFinding, read
from opcheck.reproducer.script import FILLS, Parameter, nbytes, write
from opcheck.worker.process import python, run

#: Seconds that one try may take.
_PATIENCE = 180
#: The largest tensors in bytes of a program that is tried; the CPU has them twice.
_MOST = 1 << 30
#: The operators that a program may call, because a report may name anything in torch.ops.
_NAMESPACES = ("aten", *LIBRARIES)
#: Arguments that are files, such as ``filename`` of aten::from_file and ``path`` of torchvision::read_file.
_FILE = re.compile("file|path|folder|directory|url", re.IGNORECASE)

#: The schema of the overload that is the argument, as JSON; ``_schema`` has no public equivalent.
_ASK_SCHEMA = """
import json, sys, torch
namespace, _, name = sys.argv[1].partition("::")
if namespace in sys.argv[2:]:
    __import__(namespace)
packet, _, overload = name.partition(".")
schema = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")._schema
print(json.dumps([
    {"name": argument.name, "type": str(argument.type), "keyword_only": argument.kwarg_only}
    for argument in schema.arguments
]))
"""


class TriedProgram(Record, frozen=True, kw_only=True):
    """A program, and the results of trying it."""

    text: str
    #: it runs on this machine's CPU, and the emulated Mac does with it what the report predicts; None: not tried.
    on_cpu: bool | None
    emulated: bool | None
    #: the same in words, a line each
    notes: tuple[str, ...]
    #: what the emulated Mac raised or printed, with the type of the exception.
    expected: tuple[str, ...]

    @property
    def checked(self) -> bool:
        """Return whether both tries succeeded."""
        return bool(self.on_cpu) and bool(self.emulated)


class _Emulated(NamedTuple):
    same: bool | None
    note: str
    raised: str = ""


def make(chosen: ChosenFinding) -> TriedProgram:
    """Write the program for a finding, and try it with the first filling of its tensors that the CPU accepts.

    The finding has calls, and an example of them.

    Raises:
        UsageError: the report may come from anybody, and no program of ours calls such an operator.
    """
    calls = chosen.calls
    assert calls is not None
    assert calls.example is not None
    _check_namespace(calls.op)
    _check_files(calls.op, calls.example.arguments)
    installed = f"torch {chosen.report.capture.installed_torch or 'that is installed here'}"
    size = nbytes(calls.example)
    if size > _MOST:
        return _report_untried(chosen, (), f"Not tried here: its tensors take {filesize(size)}.")
    schema, problem = _schema(calls.op)
    if problem:
        return _report_untried(chosen, (), f"Not tried: {installed} has no {calls.op} to call ({problem}).")
    _check_files(calls.op, [parameter.name for parameter in schema if "str" in parameter.type])
    if not _is_listed(calls.op, chosen.report.target.torch):
        reason = f"Not tried: the op lists of torch {chosen.report.target.torch} have no {calls.op}."
        return _report_untried(chosen, schema, reason)
    with tempfile.TemporaryDirectory(prefix="opcheck-") as directory:
        path = Path(directory, "repro.py")
        fill, problem = _first_that_runs(chosen, schema, path)
        if problem:
            reason = f"Not tried on an emulated Mac: it does not run on the CPU with {installed} ({problem})."
            return replace(_report_untried(chosen, schema, reason), on_cpu=False)
        emulated = _emulate(chosen, path)
    notes = (f"Tried: it runs on a CPU with {installed}; {emulated.note}",)
    expected = expectation(chosen, emulated.raised)
    text = write(chosen, schema, fill, expected=expected, checked=notes)
    return TriedProgram(text=text, on_cpu=True, emulated=emulated.same, notes=notes, expected=expected)


def _check_namespace(op: str) -> None:
    if op.partition("::")[0] not in _NAMESPACES:
        raise UsageError(
            f"no program is written for {op}",
            context=f"operators of {', '.join(_NAMESPACES)} alone have one",
            hint="write it by hand: import the library that registers the operator, and call it",
        )


def _check_files(op: str, names: Iterable[str]) -> None:
    for name in names:
        if _FILE.search(name):
            raise UsageError(
                f"no program is written for {op}: its argument {name!r} names a file",
                context="opcheck runs the programs that it writes",
                hint="write it by hand",
            )


def _is_listed(op: str, line: str) -> bool:
    try:
        return load().resolve(op, line).status != "unknown"
    except OpcheckError:  # there is no list for the release
        return False


def expectation(chosen: ChosenFinding, raised: str = "") -> tuple[str, ...]:
    """Describe what the target does, a line each; ``raised`` is what the emulated Mac did."""
    calls = chosen.calls
    prints = calls.prints if calls else chosen.finding.prints
    if raised:
        return (raised,)
    if chosen.uncertain:
        return (f"perhaps, the op lists are not certain: {chosen.finding.prints}",)
    if chosen.silent:
        texts = [chosen.report.statements[name].summary for name in chosen.statement_names]
        return ("no error, and a result that is not the CPU's:", *texts)
    if calls is not None and calls.status == "fallback":
        runs = calls.kind != "env" or chosen.report.target.cpu_fallback
        how = "a warning, and the result of the CPU" if runs else "an error"
        return (f"{how}: {prints or calls.because}",)
    return (prints or (calls.because if calls else chosen.finding.message),)


def _report_untried(chosen: ChosenFinding, schema: Sequence[Parameter], reason: str) -> TriedProgram:
    expected = expectation(chosen)
    text = write(chosen, schema, FILLS[0], expected=expected, checked=(reason,))
    return TriedProgram(text=text, on_cpu=None, emulated=None, notes=(reason,), expected=expected)


def _first_that_runs(chosen: ChosenFinding, schema: Sequence[Parameter], path: Path) -> tuple[str, str]:
    """Return the first filling that lets the program run on the CPU; else how it failed with the first."""
    problems = []
    for fill in FILLS:
        path.write_text(write(chosen, schema, fill, expected=(), checked=()), encoding="utf-8")
        code, _, error = _run([str(path), "cpu"])
        if code == 0:
            return fill, ""
        problems.append(_last_line(error) or f"exit code {code}")
    return FILLS[0], problems[0]


def _schema(op: str) -> tuple[tuple[Parameter, ...], str]:
    """Return the parameters of an overload of the installed torch; else why there are none."""
    code, out, error = _run(["-c", _ASK_SCHEMA, op, *LIBRARIES])
    if code:
        return (), _last_line(error)
    return msgspec.json.decode(out.splitlines()[-1], type=tuple[Parameter, ...]), ""


def _emulate(chosen: ChosenFinding, path: Path) -> _Emulated:
    """Return whether ``opcheck run`` reaches the same verdict on the same operator."""
    report, calls = chosen.report, chosen.calls
    assert calls is not None
    answer = path.with_suffix(".json")
    words = (
        *("-m", "opcheck", "run", "--emulate", "--quiet"),
        *("--torch", report.target.torch, "--macos", report.target.macos),
        "--fallback" if report.target.cpu_fallback else "--no-fallback",
        *("--format", "json", "--output", str(answer), str(path)),
    )
    code, _, error = _run(words)
    target = f"an emulated Mac with torch {report.target.torch} and macOS {report.target.macos}"
    if not answer.exists():
        why = _last_line(error) or f"exit code {code}"
        return _Emulated(None, f"on {target} it could not be tried ({why}).")
    try:
        groups = read(str(answer)).groups
    except OpcheckError as damaged:
        return _Emulated(None, f"the report of {target} cannot be read ({damaged.message}).")
    if not any(_is_same(calls, group) for group in groups):
        return _Emulated(same=False, note=f"{target} does not do the same: the call alone is not the reason.")
    more = " (its numbers are the CPU's: that they are wrong, only a Mac shows)" if chosen.silent else ""
    more = " (whether it raises, only a Mac shows)" if chosen.uncertain else more
    return _Emulated(same=True, note=f"{target} does the same{more}.", raised=_raised_text(error))


def _is_same(expected: CallGroup, emulated: CallGroup) -> bool:
    keys = ("op", "status", "kind", "prints", "because")
    has_advisories = set(expected.advisories) <= set(emulated.advisories)
    return has_advisories and all(getattr(expected, key) == getattr(emulated, key) for key in keys)


def _run(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Return the exit code and the output; the user's PYTORCH_ variables are not passed on."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OPCHECK_", "PYTORCH_"))}
    done = run(python(*arguments), _PATIENCE, environment=own)
    if done.late:
        return 1, "", f"it took more than {_PATIENCE} seconds"
    return done.code, done.out, done.err


def _raised_text(error: str) -> str:
    """Return the exception that ended the program, on one line, or the warning that it printed."""
    lines = error.splitlines()
    for line in reversed(lines):
        name, colon, _ = line.partition(": ")
        if colon and name.isidentifier() and name.endswith(("Error", "Exception")):
            return line
    warnings = (line.partition("UserWarning: ") for line in lines)
    return next((f"UserWarning: {text}" for _, word, text in warnings if word), "")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
