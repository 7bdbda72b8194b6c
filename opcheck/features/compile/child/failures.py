"""Explains why a graph did not compile for mps: Inductor's error, with the operator and the user's line."""

from __future__ import annotations

import re
import traceback

import torch

from opcheck.features.compile.child.on_mps import is_python_number
from opcheck.features.compile.records import CompileFailure
from opcheck.model.records import SourceLocation
from opcheck.tracing.source_locations import locate_in_text

#: Messages that compiling without a Mac makes, and a Mac does not; what each means, by a code of its own.
_OURS = {
    "harness-allocation": (
        r"aten::empty_strided.*'MPS' backend|OutsideError: aten::",
        "this step makes a real tensor on mps, which needs a Mac",
    ),
    "harness-device": (
        r"not linked with support for mps",
        "this step asks PyTorch's C++ for the device mps, which needs a Mac",
    ),
    "harness-constant": (
        r"set the storage of a tensor on device",
        "a constant of this graph cannot be put on a device that is not there",
    ),
    "harness-shader": (r"MPS is not available", "this step compiles its own shader on a Mac"),
    "harness-values": (r"Cannot copy out of meta", "this step needs values, and has shapes alone"),
    "harness-fake": (r"fake_impls|fake mode", "PyTorch's shape rules do not cover this step"),
    # execute/compiler.py
    "harness-compiler": (
        r"CompilerError: (?P<detail>.{0,100})",
        "this machine cannot run the kernel",
    ),
}
_DTYPE = re.compile(r"KeyError: torch\.(?P<dtype>\w+)|(?P<plain>float64) is not supported by MPS")
#: of a special function; of the others, the message is empty and the method says what is missing (codegen/mps.py)
_LACKING = re.compile(r"MetalOverrides does not implement ops\.(?P<name>\w+)")
#: as compile.yaml recognises it
_PASSED = ", in which Dynamo passes floats of Python"
_DOES_NOT = "Inductor's Metal backend does not implement {}"


def failure(error: BaseException, gm: torch.fx.GraphModule) -> CompileFailure:
    """Return what Inductor raised for this graph: its kind, the operator that it stopped at, the user's line."""
    cause = error
    while getattr(cause, "inner_exception", None) is not None:
        cause = cause.inner_exception  # type: ignore[attr-defined]  # torch._inductor.exc.InductorError
    text = " ".join(f"{type(cause).__name__}: {cause}".split())
    dtype = _DTYPE.search(text)
    node = (_first_of(dtype, gm) if dtype else None) or _blamed_node(error, gm)
    op = "" if node is None else operator_name(node)
    location = None if node is None else line(node)

    def classify(kind: str, message: str, *, ours: bool = False) -> CompileFailure:
        return CompileFailure(
            kind=kind,
            message=message,
            op=op,
            location=location,
            module="" if node is None else module(node),
            ours=ours,
        )

    for code, (pattern, meaning) in _OURS.items():
        match = re.search(pattern, text)
        if match:
            detail = "".join(f": {part}" for part in match.groups())
            return classify("harness", f"not checked ({code}): {meaning}{detail}", ours=True)
    if dtype:
        name = dtype["dtype"] or dtype["plain"]
        passed = (
            _PASSED if name == "float64" and any(map(_is_python_number, gm.graph.nodes)) else ""
        )
        return classify("dtype", f"Inductor's Metal backend has no {name}{passed}")
    if isinstance(cause, NotImplementedError):
        named = traceback.extract_tb(cause.__traceback__)[-1].name
        lacking = _LACKING.search(text)
        named = lacking["name"] if lacking else named
        plain = lacking or not str(cause)
        return classify("operator", _DOES_NOT.format(named) if plain else text)
    return classify("inductor", text[:500])


def _is_python_number(node: torch.fx.Node) -> bool:
    return node.op == "placeholder" and is_python_number(node.meta.get("val"))


def _first_of(dtype: re.Match[str], gm: torch.fx.GraphModule) -> torch.fx.Node | None:
    """Return where the dtype comes into the graph: what is lowered with it may be fused with what follows."""
    number = getattr(torch, dtype["dtype"] or dtype["plain"], None)
    for node in gm.graph.nodes:
        if node.op == "call_function" and getattr(node.meta.get("val"), "dtype", None) == number:
            return node
    return None


def _blamed_node(error: BaseException, gm: torch.fx.GraphModule) -> torch.fx.Node | None:
    """Return the node of the graph that was being lowered or generated, as the frames of the error tell."""
    by_name = {node.name: node for node in gm.graph.nodes}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in list(frame.f_locals.values()):
            if isinstance(value, torch.fx.Node) and value.name in by_name:
                return by_name[value.name]
            # Not getattr: a handler of Inductor's operators answers to every name, with a warning.
            inner = vars(value).get("node") if hasattr(value, "__dict__") else None
            origins = getattr(inner, "origins", None)
            named = [by_name[node.name] for node in origins or () if node.name in by_name]
            called = [node for node in named if node.op == "call_function"]
            if called:
                return max(called)
    return None


def operator_name(node: torch.fx.Node) -> str:
    """Return the dispatcher's spelling of what a node calls."""
    return node.target.name() if hasattr(node.target, "name") else str(node.target)


def module(node: torch.fx.Node) -> str:
    """Return the path of the innermost module that called a node's origin; for a backward node, that of its forward."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    # L['self'].encoder.layers.0: the variable that holds the outermost one says nothing (torch/_dynamo/source.py).
    inner = _VARIABLE.sub("", paths[-1]) if paths else ""
    return ".".join(step for step in _STEP.findall(inner) if step != "_modules")


_VARIABLE = re.compile(r"^[LG]\[['\"]\w+['\"]\]")
_STEP = re.compile(r"\w+")


def line(node: torch.fx.Node) -> SourceLocation | None:
    """Return the user's line that the node comes from."""
    return locate_in_text(node.stack_trace)
