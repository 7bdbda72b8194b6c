"""The errors and warnings that a program sees on an emulated Mac.

Verdicts have the errors of the target. Where the CPU's kernel, which computes in place of MPS's, raises an error, the
program gets the error that a Mac raises, as far as it is known.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from opcheck.capture.child.endings import EXCEPTIONS
from opcheck.common.versions import Span, Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data import messages
from opcheck.data.messages import FIELD
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.data.tables import nowhere, refused_by
from opcheck.model.records import OpCall, Verdict
from opcheck.simulator.dispatch.routes import end_of
from opcheck.simulator.errors import NotSimulatedError, ProcessAbortedError, RefusedError
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map_only

#: the arguments of a call by their names, with the CPU's values
Given = Mapping[str, Any]

#: texts of the CPU's checks
_OF_INDICES = re.compile(r"out of (?:range|bounds)|not in the valid range|invalid max index", re.IGNORECASE)


class Check(msgspec.Struct, frozen=True):
    """What a Mac does with arguments of some operators that the CPU's kernel refuses; a row of argument_checks.yaml."""

    operators: str
    since: str
    until: str | None = None
    text: str = ""
    on_mac: str = ""
    raised: str = ""
    unchecked: tuple[str, str] | None = None
    dtypes: frozenset[str] = frozenset()

    def fits(self, operator: str, release: Version) -> bool:
        """Return whether the row is about an overload in a release."""
        name = re.match(rf"aten::_?(?:{self.operators})_?(?:\.|$)", operator)
        return name is not None and release in Span.of(self.since, self.until)


#: rows by what they are about: indices, values and dtypes
CHECKS = msgspec.convert(load_shipped(Path(__file__).with_name("argument_checks.yaml")), dict[str, tuple[Check, ...]])


class Indices(NamedTuple):
    """A tensor of indices among the arguments of a call."""

    #: the argument, and the place in it where it is a list
    argument: str
    place: int | None
    tensor: torch.Tensor
    dim: int
    #: how many values there are from 0 on
    size: int
    #: the lowest value that counts from the end; 0 where none does
    lowest: int = 0

    def outside(self) -> torch.Tensor:
        """Return the mask of the indices out of range."""
        return (self.tensor < self.lowest) | (self.tensor >= self.size)


def indices(given: Given) -> Iterator[Indices]:
    """Return the tensors of indices of a call, as far as their ranges are known.

    Raises:
        KeyError, IndexError, AttributeError: an argument is missing.
    """
    first = given["weight"] if "indices" in given and "weight" in given else given["self"]
    if "target" in given:
        target = given["target"]
        ignored = target == given.get("ignore_index", -100)
        dim = 1 if first.dim() > 1 else 0
        yield Indices("target", None, target.masked_fill(ignored, 0), dim, first.shape[dim])
    elif "output_size" in given:
        yield Indices("indices", None, given["indices"], 0, math.prod(given["output_size"]))
    elif "index" in given:
        dim = given["dim"]
        size = first.shape[dim] if first.dim() else 1
        lowest = -size if "value" in given and "src" not in given else 0
        yield Indices("index", None, given["index"], dim, size, lowest)
    elif isinstance(given["indices"], torch.Tensor):
        yield Indices("indices", None, given["indices"], 0, first.shape[0])
    else:
        dim = 0
        for place, index in enumerate(given["indices"]):
            if index is not None and index.dtype not in (torch.bool, torch.uint8):
                size = first.shape[dim]
                yield Indices("indices", place, index, dim, size, -size)
            dim += 1 if index is None or index.dtype is not torch.bool else index.dim()


def in_range(error: Exception, operator: str, given: Given, release: Version) -> Given | None:
    """Return the arguments that the call continues with where a Mac checks no index; None: another error.

    Args:
        error: raised by the CPU's kernel.
        operator: the overload.
        given: its arguments.
        release: the target's torch.

    Raises:
        RefusedError: a Mac checks the index, too.
    """
    check = next((row for row in CHECKS["indices"] if row.fits(operator, release)), None)
    if check is None or not _OF_INDICES.search(str(error)):
        return None
    changed = dict(given)
    for each in indices(given):
        mask = each.outside()
        for position in mask.flatten().nonzero().flatten()[:1].tolist():
            value = int(each.tensor.flatten()[position])
            # EmbeddingBag.metal compares with >, not >= (issue 189971).
            if check.text and not ("embedding_bag" in operator and value == each.size):
                numbers = {"index": value, "position": position, "dim": each.dim, "size": each.size}
                raise RefusedError("index_out_of_range", check.text.format(**numbers))
        inside: Any = each.tensor.masked_fill(mask, 0)
        if each.place is not None:
            inside = [inside if place == each.place else index for place, index in enumerate(changed[each.argument])]
        changed[each.argument] = inside
    return changed


#: the attribute of the errors that an emulated Mac raises
_MARK = "_opcheck_raised_on_a_mac"


#: the kinds of ``Problem`` that such an error is: a finding of the call explains it, or every device raises it
CALL_RAISED, REFUSED_EVERYWHERE = "call_raised", "refused_everywhere"


def mark_raised_on_a_mac(error: BaseException, kind: str = REFUSED_EVERYWHERE) -> BaseException:
    """Note on an error that a Mac raises it, and return it."""
    setattr(error, _MARK, kind)
    return error


def kind_on_a_mac(error: BaseException) -> str:
    """Return the kind of ``Problem`` of an error that an emulated Mac raised, in any thread; empty for others."""
    return str(getattr(error, _MARK, ""))


def _without_zeros(divisor: Any) -> Any:
    return divisor.masked_fill(divisor == 0, 1) if isinstance(divisor, torch.Tensor) else divisor or 1


#: what takes the place of an argument that no Mac checks, by its name in the table
CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "absolute": torch.abs,
    "identity": lambda matrices: torch.eye(*matrices.shape[-2:], dtype=matrices.dtype).expand_as(matrices),
    "nonzero": _without_zeros,
    "probabilities": lambda numbers: numbers.nan_to_num(nan=0.0).clamp(0, 1),
    "zeros": torch.zeros_like,
}
_RAISED: Mapping[str, type[Exception]] = {kind.__name__: kind for kind in (torch.AcceleratorError, RuntimeError)}


def find_mac_outcome(error: Exception, operator: str, given: Given, release: Version) -> Exception | Given | None:
    """Return what a Mac raises where the CPU's kernel raised ``error``; None where that is not known.

    Where a Mac checks nothing, it is the arguments that the call continues with.

    Args:
        error: raised by the CPU's kernel.
        operator: the overload.
        given: its arguments by their names.
        release: the target's torch.
    """
    text = str(error)
    for check in CHECKS["values"]:
        if not (re.search(check.text, text) and check.fits(operator, release)):
            continue
        if check.unchecked is None:
            # The CPU's text up to its number, where the two differ.
            shown = re.sub(check.text, check.on_mac, text, count=1) if check.on_mac else text
            return _RAISED.get(check.raised, type(error))(shown)
        name, change = check.unchecked
        if name in given:
            return {**given, name: CHANGES[change](given[name])}
    return None


def compute_without_values(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return what a call returns on the device meta."""
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
    return function(*args, **{name: "meta" if name == "device" else value for name, value in kwargs.items()})


def is_refused_everywhere(error: Exception, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether the call raises on tensors without values, too: a check that all devices share.

    Its text may differ there: Python has meta kernels of its own (torch/_meta_registrations.py).
    """
    try:
        compute_without_values(function, args, kwargs)
    except NotImplementedError as raised:
        return str(raised) == str(error)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return True
    return False


# -- the errors and warnings that a program sees on an emulated Mac --
# Verdicts have the errors of the target. Where the CPU's kernel, which computes in place of MPS's, raises an error, the
# program gets the error that a Mac raises, as far as it is known.

# -- errors and warnings of the target -------------------------------------------------------------

#: The types of refusals that the simulation finds (torch/csrc/utils/tensor_numpy.cpp, MPSStream.mm); others are
#: RuntimeErrors.
_REFUSALS: dict[str, type[Exception]] = {
    "numpy": TypeError,
    "index_out_of_range": torch.AcceleratorError,
    "pinned_memory_of_cuda": NotImplementedError,
    "compressed_layout": NotImplementedError,
    "quantized_dtype": NotImplementedError,
}


def error_of(verdict: Verdict, call: OpCall, target: Target, lists: OpLists) -> BaseException | None:
    """Return what the target raises; None where the call runs, or its verdict is unknown."""
    if verdict.status == "fallback" and verdict.kind == "env" and not target.cpu_fallback:
        return NotImplementedError(verdict.prints)
    # A dtype that no backend computes: the CPU is tried, for the text that all backends share.
    if verdict.status != "unsupported" or any(item.kind == "measured" for item in verdict.evidence):
        return None
    if call.refusal is not None:
        return _REFUSALS.get(call.refusal[0], RuntimeError)(verdict.prints)
    if (statement := _deciding_statement(verdict, lists)) is None:
        # There is no kernel for MPS, and with the fallback variable none for the CPU.
        unknown = f"{call.op}: {verdict.because} [the Mac's own text is not known]"
        return NotImplementedError(verdict.prints or unknown)
    if statement.effect == "aborts":
        return ProcessAbortedError(verdict.prints or verdict.because)
    if statement.error is None or not verdict.prints:
        return RuntimeError(f"{verdict.because} [the Mac's own text is not known; opcheck: {statement.id}]")
    return EXCEPTIONS.get(statement.error.type, RuntimeError)(verdict.prints)


def warning_of(verdict: Verdict, op: str, lists: OpLists) -> str:
    """Return the text of the UserWarning that the target gives where the call runs, or empty."""
    if verdict.status == "fallback" and verdict.kind in {"always", "env"}:
        return messages.fallback_warning(verdict.named or op)
    if verdict.status == "unsupported" or not verdict.prints:
        return ""
    errors = [statement.error for statement in _list_statements(verdict, lists)]
    warns = any(
        error is not None and error.type == "UserWarning" and verdict.prints.startswith(FIELD.split(error.text)[0])
        for error in errors
    )
    return verdict.prints if warns else ""


def _list_statements(verdict: Verdict, lists: OpLists) -> list[Statement]:
    by_id = lists.statements.by_id
    return [by_id[entry.detail] for entry in verdict.evidence if entry.detail in by_id]


def _deciding_statement(verdict: Verdict, lists: OpLists) -> Statement | None:
    ends = [statement for statement in _list_statements(verdict, lists) if statement.effect in {"aborts", "raises"}]
    return min(ends, key=lambda statement: statement.rank, default=None)


# -- errors of the CPU's kernels -------------------------------------------------------------------

#: On a Mac, too, the CPU runs these: its texts are the Mac's.
_RUN_BY_THE_CPU = frozenset({None, "cpu_fallback", "cpu_only"})

#: ATen/Dispatch.h, AT_DISPATCH_SWITCH.
_NOT_IMPLEMENTED = re.compile(r"\"(?P<kernel>\w+)\" not implemented for '(?P<dtype>\w+)'")

#: Other texts of the CPU's kernels (Sorting.cpp, TensorMethods.cpp), or that name such a kernel (OperatorEntry.cpp).
_OF_THE_CPU = re.compile(
    r"^expected scalar type \w+ but found \w+$|not supported on CPU|does not support .* on CPU|\bon CPU (?:does|is) not"
    r"|'CPU' backend|\w_cpu(?:_\w*)?\b"
)

#: How shared code names a tensor's type: ATen/core/TensorBase.h, toString.
_TYPE_NAME = re.compile(r"\btorch\.(?P<plain>[A-Z]\w*)Tensor\b|\bCPU(?P<full>[A-Z]\w*)Type\b")


class CpuRefusesError(NotSimulatedError, NotImplementedError):
    """The CPU's kernel refuses a call, and it is not known what a Mac's kernel does.

    A program that catches PyTorch's NotImplementedError or RuntimeError catches this, too.
    """


def is_run_by_the_cpu(operator: str, registrations: Mapping[str, str]) -> bool:
    """Return whether a Mac computes an overload on the CPU, or by what all devices share."""
    return end_of(registrations.get(operator), registrations) in _RUN_BY_THE_CPU


def mac_error(
    error: Exception, operator: str, arguments: tuple[Any, ...], registrations: Mapping[str, str], release: Version
) -> Exception:
    """Return the error that a Mac raises where the CPU's kernel raised ``error``; often the same.

    Args:
        error: raised by the CPU's kernel.
        operator: the overload.
        arguments: of the call.
        registrations: of the target.
        release: the target's torch.
    """
    text = str(error)
    if is_run_by_the_cpu(operator, registrations) or not isinstance(error, RuntimeError):
        return error
    refused = _NOT_IMPLEMENTED.match(text)
    if refused is None and not _OF_THE_CPU.search(text):
        shown = _TYPE_NAME.sub(lambda name: f"MPS{name['plain'] or name['full']}Type", text)
        return error if shown == text else type(error)(shown)
    dtypes = refused["dtype"] if refused else ", ".join(_dtypes(arguments))
    if refused:
        for row in CHECKS["dtypes"]:
            if dtypes in row.dtypes and row.fits(operator, release):
                text = row.on_mac or f"\"{row.text}\" not implemented for '{dtypes}'"
                return _RAISED.get(row.raised, type(error))(text)
    for dtype in _dtypes(arguments):
        if refused_by(operator, dtype):
            return NotImplementedError(f"{operator}: {nowhere(dtype)} [the Mac's own text is not known]")
    return CpuRefusesError(
        f"{operator}: this machine's CPU computes in place of the MPS kernel, and refuses "
        f"{dtypes}; whether a Mac refuses it, and its message, are unknown"
    )


def _dtypes(arguments: tuple[Any, ...]) -> list[str]:
    dtypes = {
        getattr(leaf, "dtype", leaf) for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor | torch.dtype)
    }
    return sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
