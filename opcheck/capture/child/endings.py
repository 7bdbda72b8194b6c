"""Classifies what ended a program: its own error, an error of a Mac too, a limit of opcheck, or a refused call."""

import ast
import dis
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from opcheck.capture.child.recording.graph import op_call
from opcheck.capture.child.recording.recorder import RecordedCall
from opcheck.capture.word_lists import TABLES, read_words
from opcheck.common.errors import OpcheckError
from opcheck.common.python_source import parse_source
from opcheck.common.text import error_text, one_line, shorten, type_and_text
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Phase
from opcheck.data import messages
from opcheck.data.packages import PACKAGES
from opcheck.data.registrations import load
from opcheck.data.statement_model import Statement
from opcheck.data.tables import NAMES
from opcheck.model.records import OpCall, Problem, SourceLocation
from opcheck.simulator.errors import DataDependentError, NotSimulatedError, OutsideError
from opcheck.simulator.target_reads import TargetQueries
from opcheck.simulator.visible import device_mode
from opcheck.simulator.visible.start_methods import is_not_spawned
from opcheck.tracing.source_locations import caught_names, is_handled, is_user_code

# -- what an exception means ------------------------------------------------------------------------


_OPCHECK = str(Path(__file__).parents[2]) + "/"
_SIMULATION = _OPCHECK + "simulator/"
_TORCH = str(Path(torch.__file__).parent) + "/"

#: Python raises these for a mistake in code, and PyTorch's C++ for none of a program's.
_MISTAKES = (AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)

#: The errors of C++ that a simulated tensor causes.
_SIMULATION_TEXTS = re.compile("|".join(TABLES["simulation_texts"]))

#: Python's message for a name that a module of torch does not have.
_ABSENT_NAME = re.compile(
    r"module '(?P<module>torch[\w.]*)' has no attribute '(?P<name>\w+)'"
    r"|cannot import name '(?P<imported>\w+)' from '(?P<package>torch[\w.]*)'"
)

#: the functions of ours that do no more than call torch's with the program's arguments.
_PASSAGES = read_words("passages")


def kind_of(error: BaseException) -> str:
    """Return a kind of ``Problem``: of RAISED_ON_A_MAC, or ``opcheck_limit``; empty: the program's own error."""
    if is_not_spawned(error):
        return "not_spawned"
    if isinstance(error, ImportError) and missing_package(error):
        return "needs_package"
    text = "" if isinstance(error, OpcheckError) else error_text(error)
    if messages.remedy_for("without_cuda", text):
        return "needs_cuda"
    if name_of_a_later_release(error):
        return "needs_newer_torch"
    if messages.remedy_for("refused_on_mps", text):
        return "refused_on_mps"
    if is_limit(error):
        return "opcheck_limit"
    return "mps_branch" if condition_before(error) else ""


def problem_of(error: BaseException, kind: str, location: SourceLocation | None) -> Problem:
    """Return the problem for an exception of these kinds."""
    text = type_and_text(error)
    if kind in _MESSAGES:
        message, answer = _MESSAGES[kind]
        answered = answer(error)
        message = message.format(text, answered)
        return Problem(kind=kind, message=message, location=location, answered=answered)
    if isinstance(error, (NotSimulatedError, OutsideError)):
        text = one_line(error)
    message = f"a limit of opcheck, and no error of the program's: {text}"
    return Problem(kind=kind, message=message, location=location)


_SAYS_MISSING = re.compile(r"not installed|requires|doesn't seem to be installed")


def missing_package(error: ImportError) -> str:
    """Return the distribution without a macOS wheel that an import lacks; empty where it lacks another."""
    by_import, by_name = PACKAGES.load().by_import, PACKAGES.load().by_name
    lacking = (error.name or "").partition(".")[0]
    text = error_text(error)
    names = [by_import[lacking]] if lacking in by_import else []
    if not isinstance(error, ModuleNotFoundError) and _SAYS_MISSING.search(text):
        # What transformers and diffusers say before they import it.
        names += [name for module, name in by_import.items() if re.search(rf"\b{module}\b", text)]
        names += [name for name, package in by_name.items() if any(alias in text for alias in package.named)]
    return next(
        (name for name in names if not (by_name[name].since or by_name[name].sources or by_name[name].fails)), ""
    )


def name_of_a_later_release(error: BaseException) -> str:
    """Return the name or argument that the target's torch lacks and the installed torch has; empty: neither."""
    if isinstance(error, TypeError) and hasattr(error, "lacking"):
        return str(error.lacking)
    absent = isinstance(error, (AttributeError, ImportError)) and _ABSENT_NAME.search(error_text(error))
    if not absent:
        return ""
    module, name = absent["module"] or absent["package"], absent["name"] or absent["imported"]
    is_listed = name in NAMES.load().modules.get(module, ())
    return f"{module}.{name}" if is_listed else ""


def is_limit(error: BaseException) -> bool:
    """Return whether opcheck ended the program where a Mac would have gone on, or where that is unknown."""
    if isinstance(error, (NotSimulatedError, OutsideError, DataDependentError)):
        return True
    if _SIMULATION_TEXTS.search(error_text(error)):
        return True
    frames = list(_frames(error.__traceback__))
    if not frames:
        return False
    innermost = frames[-1]
    file = innermost.tb_frame.f_code.co_filename
    if file.startswith(_OPCHECK):
        return not _is_deliberate(innermost) and not _is_the_programs(error, innermost)
    if file.startswith(_TORCH) and isinstance(error, _MISTAKES):
        return _is_asked_by_opcheck(frames)
    return False


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _is_deliberate(trace: TracebackType) -> bool:
    """Return whether the frame raised deliberately: the simulator's own exceptions reproduce a Mac's."""
    code = trace.tb_frame.f_code.co_code
    return dis.opname[code[trace.tb_lasti]] in {"RAISE_VARARGS", "RERAISE"}


def _is_the_programs(error: BaseException, trace: TracebackType) -> bool:
    """Return whether C++ refused there what the program gave it."""
    # ImportError: what watches the program's imports passes them on. SyntaxError: what compiles the program.
    if isinstance(error, (RuntimeError, ValueError, IndexError, ImportError, SyntaxError)):
        return True
    named = trace.tb_frame.f_code.co_name in _PASSAGES
    return named and not isinstance(error, (AttributeError, NameError, AssertionError))


def _is_asked_by_opcheck(frames: list[TracebackType]) -> bool:
    """Return whether opcheck, and not the program, called the function of torch's that raised: a meta kernel, say."""
    for trace in reversed(frames):
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(_OPCHECK):
            return file.startswith(_SIMULATION) and trace.tb_frame.f_code.co_name not in _PASSAGES
        if is_user_code(file):
            return False
    return False


# -- refused calls ---------------------------------------------------------------------------------
#
# A call that raises before any kernel, by the very text of a limitation that applies to the target.
# Some checks are in a composite's C++, in front of every kernel, and check whether the device is
# CUDA: the CPU under the simulation answers as a Mac does (promote_type_fft in
# aten/src/ATen/native/SpectralOps.cpp, say).


#: a text with less of its own than this could be anybody's.
_FEWEST_LETTERS = 12
_PLACEHOLDER = re.compile(r"\\\{\w+\\\}")


def refused_operator(error: BaseException) -> str:
    """Return the operator whose C++ raised, called by name; empty where Python raised."""
    frames = _frames(error.__traceback__)
    if not frames or frames[-1].tb_frame.f_code.co_filename != device_mode.__file__:
        return ""
    name = getattr(frames[-1].tb_frame.f_locals.get("func"), "__name__", "")
    return f"aten::{name}" if hasattr(torch.ops.aten, name) else ""


def is_refused_by_torch(error: BaseException) -> bool:
    """Return True if PyTorch refuses a call in front of any kernel, in C++ or Python, as it does on a Mac.

    That is a call with a tensor on MPS, or a function of ``torch.mps``, whose errors the simulator reproduces.
    """
    frames = _frames(error.__traceback__)
    if not frames or not isinstance(error, (RuntimeError, ValueError, IndexError, TypeError)):
        return False
    frame = frames[-1].tb_frame
    file = frame.f_code.co_filename
    if not file.startswith((_SIMULATION, _TORCH)):
        return False
    if file.startswith(_TORCH + "mps/") or (file.startswith(_SIMULATION) and _is_deliberate(frames[-1])):
        return True
    return device_mode.any_on_mps([*frame.f_locals.values()], frame.f_locals.get("kwargs") or {})


def is_unpicklable(error: BaseException) -> bool:
    """Return True if Python refuses to pickle what the program sends to a process, as it does on every system."""
    frames = _frames(error.__traceback__)
    pickles = vars(ForkingPickler)["dumps"].__func__.__code__
    if isinstance(error, OSError) or all(frame.tb_frame.f_code is not pickles for frame in frames):
        return False
    code = frames[-1].tb_frame.f_code
    return code is pickles or (not is_user_code(code.co_filename) and _is_deliberate(frames[-1]))


def refused_call(
    target: Target, problem: Problem, phase: Phase, statements: Iterable[Statement] | None = None
) -> OpCall | None:
    """Return the call that raised, if a Mac is known to raise the same; None where no statement has its text."""
    if not problem.op or problem.kind not in ("model_raised", "training_raised"):
        return None
    refusal = find_refusal(target, problem.message.partition(" raised ")[2], statements)
    if refusal is None:
        return None
    return OpCall(op=problem.op, location=problem.location, module=problem.module, phase=phase, refusal=refusal)


def find_refusal(target: Target, raised: str, statements: Iterable[Statement] | None = None) -> tuple[str, str] | None:
    """Return the statement that a Mac raises this text, and the text without its type; None where none has it.

    Args:
        target: The release and the macOS that are simulated.
        raised: Type and text of an exception: ``RuntimeError: Unsupported dtype Half``.
        statements: What is searched; by default the statements that opcheck ships.
    """
    for statement in load().statements.all if statements is None else statements:
        is_here = target.macos in statement.macos and statement.spans(str(target.torch))
        if is_here and statement.effect == "raises" and not statement.when and _says(statement, raised):
            return statement.id, raised.partition(": ")[2]
    return None


def _says(statement: Statement, raised: str) -> bool:
    error = statement.error
    if error is None:
        return False
    pattern = re.escape(f"{error.type}: {error.text}")
    if len(_PLACEHOLDER.sub("", re.escape(error.text))) < _FEWEST_LETTERS:
        return False
    return re.fullmatch(_PLACEHOLDER.sub(".+", pattern), raised) is not None


# -- conditions that MPS alone passes --------------------------------------------------------------------------------


_MPS = "mps"
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def condition_before(error: BaseException) -> str:
    """Return the condition, as its source has it, that lets only MPS reach the line that raised.

    Empty: there is none, or the exception does not come from the program's or a library's own Python.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not is_user_code(frames[-1].filename):
        return ""
    for frame in reversed(frames):
        if frame.lineno is not None and is_user_code(frame.filename):
            condition = _in_block(parse_source(frame.filename).body, frame.lineno)
            if condition is not None:
                return shorten(ast.unparse(condition), 100)
    return ""


def _in_block(block: list[ast.stmt], line: int) -> ast.expr | None:
    """Return the innermost condition around or before a line of these statements that only MPS passes."""
    passed: ast.expr | None = None
    for statement in block:
        if statement.lineno > line:
            break
        if line <= (statement.end_lineno or statement.lineno):
            return _in_statement(statement, line) or passed
        if (
            isinstance(statement, ast.If)
            and not statement.orelse
            and isinstance(statement.body[-1], _LEAVES)
            and _decides_on_mps(statement.test, value=False)
        ):
            passed = statement.test
    return None


def _in_statement(statement: ast.stmt, line: int) -> ast.expr | None:
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(statement, field, None) or []
        if not block or not block[0].lineno <= line <= block[-1].end_lineno:
            continue
        if field == "handlers":
            handlers = (each.body for each in block)
            return next((found for body in handlers if (found := _in_block(body, line))), None)
        inner = _in_block(block, line)
        if inner is not None or not isinstance(statement, ast.If):
            return inner
        return statement.test if _decides_on_mps(statement.test, value=field == "body") else None
    return None


def _decides_on_mps(test: ast.expr, *, value: bool) -> bool:
    """Return whether a condition has this value on MPS alone."""
    match test:
        case ast.BoolOp(op=joined, values=values) if isinstance(joined, ast.And if value else ast.Or):
            return any(_decides_on_mps(each, value=value) for each in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _decides_on_mps(operand, value=not value)
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if isinstance(
            compared, ast.Eq if value else ast.NotEq
        ):
            return _names_mps(left) or _names_mps(right)
        case ast.Attribute(attr="is_mps"):
            return value
        case ast.Call(func=ast.Attribute(attr="startswith"), args=[prefix]):
            return value and _names_mps(prefix)
        case ast.Call(func=function):
            return value and ast.unparse(function).endswith("backends.mps.is_available")
    return False


def _names_mps(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=text) | ast.Call(args=[ast.Constant(value=text)]):  # torch.device("mps")
            return text == _MPS
    return False


#: Kind of problem -> its message, and the function of the exception that gives the report its answer.
_MESSAGES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "not_spawned": ("a Mac starts no process here: {}", type_and_text),
    "needs_cuda": ("the program requires a device that no Mac has: {}", error_text),
    "needs_package": ("{1} has no wheel for macOS, and the program needs it: {0}", missing_package),
    "needs_newer_torch": (
        "the program needs {1}, which this release of torch does not have: {0}",
        name_of_a_later_release,
    ),
    "refused_on_mps": ("PyTorch refuses this on a Mac: {}", error_text),
    "mps_branch": ("code that only mps comes to raises {}", condition_before),
}


# -- Errors of a Mac that the program handles itself: they are raised, so that its own handler runs --


#: The exceptions that a Mac raises, by the name of the type that a statement has.
EXCEPTIONS = {kind.__name__: kind for kind in (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError)}


class _CallOfProgram:
    """One call, which equals itself alone: its record is no key of a dictionary."""

    def __init__(self, record: OpCall) -> None:
        self.record = record


def raise_handled(ask: TargetQueries, call: RecordedCall) -> None:
    """Raise what a Mac raises at this call, where the program handles that type of error.

    Raises:
        RuntimeError, TypeError, NotImplementedError ...: as the target does.
    """
    frame = sys._getframe(2)
    may_handle = bool(caught_names(frame))
    refusal = ask(_find_error, _CallOfProgram(op_call(call))) if may_handle else None
    if refusal is None:
        return
    kind = EXCEPTIONS.get(refusal[0], RuntimeError)
    if is_handled(kind, frame):
        raise kind(refusal[1])


def _find_error(target: Target, call: _CallOfProgram) -> tuple[str, str] | None:
    """Return the type and the text of what a Mac raises; None where it raises nothing that is known."""
    lists, record = load(), call.record
    if record.refusal is not None:
        return RuntimeError.__name__, record.refusal[1]
    statement = lists.matching(record, target).decisive
    if statement is not None and statement.effect == "raises" and statement.error is not None:
        return statement.error.type, messages.fill_text(statement.error.text, record)
    registered = lists.operators(str(target.torch))
    for op in (record.op, *(record.inner or ())):
        if registered.get(op) == "cpu_only" and not target.cpu_fallback:
            commit = lists.release(str(target.torch)).commit
            return NotImplementedError.__name__, messages.not_implemented(op, target.torch, commit)
    return None
