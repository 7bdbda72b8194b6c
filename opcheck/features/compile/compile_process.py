"""Runs the variants in the child process.  Imports no torch."""

import ast
import importlib.util
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.common import documents
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.common.versions import Version
from opcheck.data.files import Release
from opcheck.data.wheels import inductor
from opcheck.features.compile import compile_records as records
from opcheck.worker.environments import distribution_version
from opcheck.worker.platform import CAN_FORK, SignalledError, ended_by
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay
from opcheck.worker.worker import Progress

#: seconds for preparing Inductor and reporting, besides loading and the variants
REST = 120.0


def compile_variants(
    request: CaptureRequest, plan: records.CompilePlan, *, display: ProcessDisplay = NO_DISPLAY
) -> records.CompiledVariants:
    """Try the plan's variants on the request's model in a child process; if it is ended, return the results so far.

    Raises:
        ModelLoadError, InputError: the child raises it.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    # The child ends without its exit handlers, and may be killed.
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as scratch:
        plan = replace(plan, scratch=scratch)

        def try_variants(variants: tuple[records.Variant, ...]) -> records.CompiledVariants:
            part = replace(plan, variants=variants)
            # Its own limit is that of loading.
            capture = replace(request, time_limit=plan.seconds)
            return ask(
                "opcheck.features.compile.child.try_plan:answer",
                records.CompiledVariants,
                records.CompileRequest(capture=capture, plan=part),
                capture,
                device=plan.device,
                runs=len(variants),
                display=display,
            )

        if not CAN_FORK and len(plan.variants) > 1:
            return _one_by_one(try_variants, plan.variants)
        try:
            return try_variants(plan.variants)
        except (KeyboardInterrupt, SignalledError, CaptureError) as error:
            compiled = _tried_so_far(Path(scratch) / records.TRIED)
            if compiled is None:
                raise
            ended = error.message if isinstance(error, CaptureError) else ended_by(error)
            return replace(compiled, ended=ended, lacking=len(plan.variants) - len(compiled.tried))


def _one_by_one(
    try_variants: Callable[[tuple[records.Variant, ...]], records.CompiledVariants], variants: Sequence[records.Variant]
) -> records.CompiledVariants:
    """Try each variant in a process that it may end; each process loads the model again.

    Raises:
        CaptureError: every variant's process ended.
    """
    whole: records.CompiledVariants | None = None
    tried: list[records.TriedVariant] = []
    for variant in variants:
        try:
            whole = try_variants((variant,))
            tried += whole.tried
        except CaptureError as error:
            failure = records.CompileFailure(kind="died", message=error.message)
            tried.append(records.TriedVariant(variant=variant, outcome="died", failure=failure))
    if whole is None:
        hint = "run again with -v to see what the processes printed"
        raise CaptureError("the process of every variant ended early", context="opcheck compile", hint=hint)
    return replace(whole, tried=tuple(tried))


def _tried_so_far(path: Path) -> records.CompiledVariants | None:
    """Return what a process that was ended had tried; None where it had not come so far."""
    try:
        return msgspec.json.decode(documents.read(path), type=records.CompiledVariants)
    except (documents.DocumentError, msgspec.MsgspecError):
        return None


#: The releases whose wheels have torch/_inductor/codegen/mps.py: absent in 2.6.0, there in 2.7.0.
METAL_SINCE = Version(2, 7)
#: Those with torch/_inductor/codegen/cpp_wrapper_mps.py, which AOTInductor needs.
AHEAD_SINCE = Version(2, 8)


class Backend(NamedTuple):
    """A release's Metal backend; all fields are empty where the installed backend is used."""

    folder: str = ""
    release: str = ""
    #: why it is not the target's
    problem: str = ""


def backend(release: Release, progress: Progress | None = None) -> Backend:
    """Return the release's backend, of the cache or of its macOS wheel.

    Args:
        release: the target's release.
        progress: called before a wheel is read, which may be a download of 80 MB.
    """
    line = Version.parse(release.line)
    installed = distribution_version("torch")
    if line < METAL_SINCE or not installed or Version.parse(installed) == line:
        return Backend()
    if progress:
        progress(f"reading the Inductor of torch {release.torch}")
    try:
        return Backend(str(inductor.unpack_inductor(release)), release.torch)
    except OpcheckError as error:
        return Backend(problem=": ".join(filter(None, (error.message, error.context))))


def includes(folder: str) -> Path | None:
    """Return the folder of the backend's headers; None for the installed backend."""
    return Path(folder) / inductor.HEADERS if folder else None


#: An assignment that names more operators is a list of them: its text does not describe an operator.
_FEW = 3


def differing(folder: str, operators: Iterable[str]) -> tuple[str, ...]:
    """Return the operators whose decomposition or lowering another release writes unlike the installed release.

    A function that the rule calls is not compared, so that the answer is a lower bound.

    Args:
        folder: the unpacked files of the other release; empty: there are none.
        operators: names of ATen's without overload: ``gelu``.
    """
    spec = importlib.util.find_spec("torch")
    if not folder or spec is None or spec.origin is None:
        return ()
    other, here = _rules(Path(folder)), _rules(Path(spec.origin).parents[1])
    return tuple(sorted(name for name in {*operators} if other.get(name) != here.get(name)))


def _rules(root: Path) -> Mapping[str, set[str]]:
    """Return the texts that make up the rule of each operator."""
    rules: dict[str, set[str]] = defaultdict(set)
    for file in inductor.RULES:
        path = root / file
        for statement in ast.parse(documents.read_text(path)).body if path.is_file() else ():
            for name, text in _rules_of(statement):
                rules[name].add(text)
    return rules


def _rules_of(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(statement, ast.FunctionDef):
        names = {name for decorator in statement.decorator_list for name in _operators(decorator)}
        body = statement.body[1:] if ast.get_docstring(statement) else statement.body
        text = "\n".join(map(ast.unparse, body))
        if not names and "core_aten" in statement.name:
            names, text = {*_operators(statement)}, statement.name
    else:
        names = {*_operators(statement)}
        text = type(statement).__name__ if len(names) > _FEW else ast.unparse(statement)
    yield from ((name, text) for name in names)


def _operators(tree: ast.AST) -> Iterator[str]:
    """Yield the operators that a piece of Python names: ``aten.gelu``, ``torch.ops.aten.gelu.default``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            namespace = node.value
            if "aten" in (getattr(namespace, "id", ""), getattr(namespace, "attr", "")):
                yield node.attr
