"""Pointwise operators: which functor of a release computes a call, and by which form of its kernels."""

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from opcheck.data.strict_yaml import read_as
from opcheck.kernels import pointwise
from opcheck.kernels.host.host_call import CallArguments, HostCall, HostLaunch, UnboundError, empty_like, metal_type
from opcheck.kernels.host.iteration import Iteration, is_repeated, iterate
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.model.records import Record

_TABLE = Path(__file__).with_name("pointwise_calls.yaml")
#: Elements from which a thread computes four (OperationUtils.mm, ILP_DISPATCH_THRESHOLD).
_MANY = 1 << 18
#: The extent from which rows of contiguous elements have kernels of their own (INNER_CONTIGUOUS_MIN_EXTENT).
_ROW = 16
#: Functors whose loops the operands bound.
_LOOPING = ("zeta", "polygamma", "chebyshev", "hermite", "laguerre", "shifted_chebyshev")
_PREFIX = re.compile(r"\{op:(\w+)\}")


class PointwiseEntry(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the table: the kernel that computes some operators."""

    ops: str
    kernel: tuple[str, ...]
    operands: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    when: dict[str, str | float] = {}


class PointwiseSection(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows whose host functions are in one place of PyTorch's source."""

    source: str
    operands: tuple[str, ...]
    entries: tuple[PointwiseEntry, ...]


@functools.cache
def table() -> dict[str, tuple[PointwiseEntry, ...]]:
    """Return the rows by operator, each with its operands."""
    rows: dict[str, tuple[PointwiseEntry, ...]] = {}
    for section in read_as(_TABLE, tuple[PointwiseSection, ...], lambda *_: None):
        for entry in section.entries:
            for op in entry.ops.split():
                name = _PREFIX.sub(lambda m: op.removeprefix(m[1]), entry.kernel[0])  # noqa: B023
                changes = {"ops": op, "kernel": (name.replace("{op}", op),)}
                row = msgspec.structs.replace(entry, operands=entry.operands or section.operands, **changes)
                rows[op] = (*rows.get(op, ()), row)
    return rows


def bind(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Return the launch of a pointwise call.

    Raises:
        UnboundError: the table has no row for it, or the release no kernel of that name.
        KernelError: the kernel cannot be run here.
    """
    out, reason = call.outputs[0], ""
    for row in table()[call.name]:
        if not all(_fits(call.arguments.get(name), wanted) for name, wanted in row.when.items()):
            continue
        operands = tuple(_operand(call.arguments[name]) for name in row.operands)
        parameters = tuple(_parameter(name, call, out) for name in row.parameters)
        functor = row.kernel[0]
        if functor.startswith(_LOOPING):
            # With these numbers a kernel loops without end: it gets ones in their place.
            operands = pointwise.harmless(functor, tuple(operand.expand(out.shape) for operand in operands))
        try:
            return bind_functor(functor, out, operands, parameters, release, call.elements)
        except UnboundError as error:
            reason = reason or str(error)
    raise UnboundError(reason or "the release has no kernel for it: these arguments")


def bind_functor(
    functor: str,
    out: Tensor,
    operands: tuple[Tensor, ...],
    parameters: tuple[float, ...],
    release: ReleaseKernels,
    elements: int = 0,
) -> CallArguments:
    """Return the launch of a functor.

    Args:
        functor: its name in the names of kernels.
        out: the result of the CPU.
        operands: in the kernel's order.
        parameters: of the functor's struct, or its one number.
        release: the kernels.
        elements: of the result of the whole call, where this is a part of it.

    Raises:
        UnboundError: the release has no kernel of the functor for these dtypes.
        KernelError: the kernel cannot be run here.
    """
    walk = iterate((out, *operands))
    wanted = KernelChoice(functor, out, operands, walk, elements or out.numel(), bool(parameters))
    for name, result in _candidates(wanted):
        kernel_name = release.find(name)
        if kernel_name:
            launch = _launch(release.kernel(kernel_name), result, operands, walk, parameters)
            is_part = result.is_complex() > out.is_complex()
            compared = torch.view_as_real(result)[..., 0] if is_part else result
            return CallArguments((launch,), (compared,), functor, operands, parameters)
    kinds = f"{functor} {metal_type(out)} {metal_type(operands[0])}"
    raise UnboundError(f"the release has no kernel for it: {kinds}")


def _fits(value: Any, wanted: str | float) -> bool:
    if wanted == "none":
        return value is None
    if wanted == "set":
        return value is not None
    if wanted == "tensor":
        return isinstance(value, Tensor)
    if wanted == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return not isinstance(value, Tensor) and bool(value == wanted)


def _operand(value: Any) -> Tensor:
    """Return an operand; a number is a tensor without dimensions, in float32 where Python has float64."""
    if not isinstance(value, Tensor):
        if value is None or isinstance(value, str):
            raise UnboundError("an operand is missing")
        value = torch.tensor(value)
    narrow = {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(value.dtype)
    if narrow:
        if value.dim():
            raise UnboundError("no Metal type for torch.float64")
        value = value.to(narrow)
    operand: Tensor = value.resolve_conj().resolve_neg()
    return operand


def _parameter(name: str, call: HostCall, out: Tensor) -> float:
    value = call.arguments.get(name.removeprefix("-"), name)
    if name in {"posinf", "neginf"} and value is None:
        info = torch.finfo(out.dtype)
        value = info.max if name == "posinf" else info.min
    if value is None:
        return 0.0
    number = float(value)
    return -number if name.startswith("-") else number


class KernelChoice(NamedTuple):
    """What decides a kernel's name: the functor, the result, the operands, how they are walked through."""

    functor: str
    out: Tensor
    operands: tuple[Tensor, ...]
    walk: Iteration
    #: results of the whole call, of which this may be a part
    number: int
    with_alpha: bool

    @property
    def has_rows(self) -> bool:
        """True if neither all is contiguous nor rows are too short for kernels of their own."""
        rows = self.walk.has_contiguous_rows and self.walk.sizes[0] >= _ROW
        return rows and not self.walk.is_contiguous

    @property
    def is_large(self) -> bool:
        """True if a thread computes several elements."""
        return self.out.dtype.is_floating_point and self.number >= _MANY and not self.with_alpha

    @property
    def form(self) -> str:
        """The form of kernels that cast."""
        return "dense" if self.walk.is_contiguous else "strided"

    def plain(self, few: str, many: str) -> list[str]:
        """Return the forms without a cast, the preferred first."""
        if not self.walk.is_contiguous:
            return ["inner_contiguous", "strided"] if self.has_rows else ["strided"]
        chosen = many if self.is_large else few if not self.with_alpha else ""
        return [*filter(None, [chosen]), "dense"]


def _candidates(wanted: KernelChoice) -> Iterator[tuple[str, Tensor]]:
    """Yield the names that the host asks for, each with memory for the result, the newest release's choice first."""
    result = empty_like(wanted.out)
    count = len(wanted.operands)
    if count == 1:
        yield from _unary(wanted, result)
    else:
        names = _binary(wanted) if count == 2 else _ternary(wanted)
        yield from ((f"{wanted.functor}_{name}", result) for name in names)


def _unary(wanted: KernelChoice, result: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the names of exec_unary_kernel."""
    functor, first, to = wanted.functor, wanted.operands[0], metal_type(wanted.out)
    source = metal_type(first)
    for form in wanted.plain("dense_scalar", "dense"):
        yield f"{functor}_{form}_{to}_{source}", result
    if wanted.has_rows:
        yield f"{functor}_inner_contiguous_castout_{source}", result
    yield f"{functor}_{wanted.form}_castout_{source}", result
    if first.is_complex() and not wanted.out.is_complex():
        # The host takes the real part of a complex result (abs, angle).
        wide = torch.empty(wanted.out.shape, dtype=first.dtype)
        for form in ("dense_scalar", "dense") if first.is_contiguous() else ("strided",):
            yield f"{functor}_{form}_{source}_{source}", wide


def _ternary(wanted: KernelChoice) -> Iterator[str]:
    """Yield the names of exec_ternary_kernel, without the functor's."""
    first, *others = wanted.operands
    casts = {first.dtype} != {operand.dtype for operand in (*others, wanted.out)}
    if wanted.functor == "where" or not casts:
        yield f"{wanted.form}_{metal_type(wanted.out)}_{metal_type(first)}"
    else:
        yield f"{wanted.form}_cast_{metal_type(wanted.out)}"


def _binary(wanted: KernelChoice) -> Iterator[str]:
    """Yield the names of exec_binary_kernel, without the functor's."""
    out, operands, to = wanted.out, wanted.operands, metal_type(wanted.out)
    casts = operands[0].dtype != operands[1].dtype
    common = torch.result_type(*operands)
    of_common = metal_type(torch.empty(0, dtype=common))
    read = of_common if out.dtype == torch.bool else to
    small = next((at for at in (0, 1) if _is_small(operands[at], out, operands[1 - at])), None)
    if small is not None:
        alone = operands[small].numel() == 1
        side = "" if small else ("_lhs" if alone else "_rhs")
        form = f"{'dense_scalar' if alone else 'dense_broadcast'}{side}"
        if not casts or (alone and _is_promoted(operands[small], operands[1 - small], common)):
            yield f"{form}_{to}_{metal_type(operands[1 - small])}"
        yield f"{form}_cast_{to}_{read}"
    if not casts:
        yield from (f"{form}_{to}_{metal_type(operands[0])}" for form in wanted.plain("", "dense_ilp4"))
    yield f"{wanted.form}_cast_{to}_{read}"
    yield f"{wanted.form}_cast_{to}"
    natural = "bool" if wanted.functor in _COMPARISONS else to
    yield f"strided_castout_{natural}_{of_common}"


_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


def _is_small(operand: Tensor, out: Tensor, other: Tensor) -> bool:
    """Return whether an operand repeats along the result, which the other fills."""
    if operand.numel() == out.numel() or other.numel() != out.numel():
        return False
    return other.is_contiguous() and is_repeated(operand, out)


def _is_promoted(small: Tensor, other: Tensor, common: torch.dtype) -> bool:
    whole = not (small.is_floating_point() or small.is_complex())
    return whole and other.dtype == common and common in {torch.float32, torch.complex64}


def _launch(
    kernel: Any, out: Tensor, operands: Sequence[Tensor], walk: Iteration, parameters: tuple[float, ...]
) -> HostLaunch:
    names = [argument.name for argument in kernel.buffers if argument.name in pointwise.OPERANDS]
    if len(names) != len(operands):
        raise UnboundError(f"{kernel.name} takes {len(names)} operands")
    types = {argument.name: argument.type for argument in kernel.buffers}
    placed = {}
    for name, operand in zip(names, operands, strict=True):
        # A number that the host promotes has the type that the kernel reads.
        wanted = pointwise.DTYPES.get(types[name])
        placed[name] = operand.to(wanted) if name == "scalar" and wanted and "cast" not in kernel.name else operand
    memory = pointwise.bind(kernel, placed, out, walk, parameters)
    return HostLaunch(kernel, memory, pointwise.grid(kernel, walk.sizes))
