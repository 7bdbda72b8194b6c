"""Pointwise kernels called as TensorIterator's host side does: dense, strided, broadcast, cast.

The names of the arguments in the kernel's own metadata decide the content of each buffer
(aten/src/c10/metal/indexing.h and aten/src/ATen/native/mps/OperationUtils.mm, exec_unary_kernel,
exec_binary_kernel, exec_ternary_kernel).
"""

import functools
import math
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from opcheck.kernels import air, judging, kernel_names, reference, values
from opcheck.kernels.host.iteration import Iteration, walk
from opcheck.kernels.judging import Expected, Judged
from opcheck.kernels.kernel_machine import Kernel, KernelError

#: Metal's name of a type -> torch's.
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, dtype) for name, dtype in kernel_names.WORDS.items() if name != dtype
} | {name: getattr(torch, name) for name in ("bool", "float8_e4m3fn")}
#: Words of names that are no types of Metal; kernels that only move elements are keyed by their width.
_WORDS = {
    "float8": torch.float8_e4m3fn, "8bit": torch.int8, "16bit": torch.int16, "32bit": torch.int32,
    "64bit": torch.int64, "int32_t": torch.int32, "int64_t": torch.int64,
}  # fmt: skip
_SCALAR_TYPES = {getattr(torch, dtype): number for dtype, number in kernel_names.SCALAR_TYPES.items()}
_OUTPUTS = ("out", "output")
#: The names of the arguments that are operands.
OPERANDS = ("input", "other", "other1", "other2", "broadcast", "scalar")
#: Elements that a thread computes where the host passes the number of them.
_EACH = 4
#: Extents of the innermost dimension of strided operands: a multiple of no simdgroup.
_INNER = 16
_BLOCK = 2 * _INNER
_PAIR = 2
#: Functions whose reference is not moved: comparisons, and lerp, whose weight 1 has to give the end.
UNMOVED = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "lerp", "lerp_alpha", "nextafter"])
#: The bytes after a result in memory, which a kernel must leave as they are.
_GUARD, _GUARDED = 0xA5, 64


class Unfit(ValueError):  # noqa: N818  (it is a reason, not a mistake)
    """This module cannot call the kernel; the message has the reason."""


def dtype_named(word: str) -> torch.dtype:
    """Return the dtype of a word in a kernel's name, or of an argument's type.

    Raises:
        Unfit: the dtype is not driven.
    """
    dtype = _WORDS.get(word) or DTYPES.get(word)
    if dtype is None:
        raise Unfit(f"a dtype that is not driven: {word}")
    return dtype


def address(tensor: Tensor) -> int:
    """Return where a tensor's memory begins; never nothing, also for an empty tensor."""
    return tensor.data_ptr() or torch.zeros(1).data_ptr() or 1


def pack(kind: str, fields: Sequence[air.Field], size: int, scalars: Sequence[float]) -> Tensor:
    """Return a scalar or a struct of them in memory.

    Raises:
        Unfit: a type that this module does not know.
    """
    memory = torch.zeros(max(size, 8), dtype=torch.uint8)
    places = [(field.offset, field.type) for field in fields] or [(0, kind)]
    for (offset, field_type), value in zip(places, scalars, strict=False):
        dtype = dtype_named(field_type.partition("<")[0])
        inexact = dtype.is_floating_point or dtype.is_complex
        number = torch.tensor([value if inexact else int(value)]).to(dtype).view(torch.uint8)
        memory[offset : offset + len(number)] = number
    return memory


def numbers(*scalars: int, size: int = 4) -> Tensor:
    """Pack integers of four or eight bytes into memory."""
    return torch.tensor(scalars, dtype=torch.int32 if size == 4 else torch.int64)


class PointwiseCall(NamedTuple):
    """One call: the result's dtype, the operands, which of the values they are."""

    result: torch.dtype
    operands: tuple[Tensor, ...]
    part: Tensor
    strided: bool = False


class PointwiseCase:
    """The values of an operation's kernels of one dtype, and their reference."""

    def __init__(self, operation: str, dtypes: tuple[torch.dtype, ...], parameters: tuple[float, ...]) -> None:
        self.operation, self.parameters = operation, parameters
        self.arity = len(dtypes)
        if self.arity == 1:
            operands: tuple[Tensor, ...] = (values.single(dtypes[0]),)
            self.cross, self.extents = 0, (0, 0)
        else:
            first, second = select_defined(operation, values.few(dtypes[0]), values.few(dtypes[1]))
            self.cross = len(first) * len(second)
            self.extents = len(first), len(second)
            crossed = [first.repeat_interleave(len(second)), second.repeat(len(first))]
            crossed += [values.few(d)[torch.arange(self.cross) * 7 % len(values.few(d))] for d in dtypes[2:]]
            drawn = harmless(operation, tuple(values.draw(d, 10 + place) for place, d in enumerate(dtypes)))
            # Of three operands each pair meets 1, too, the weight and the factor that show a mistake.
            plain = [*crossed[:2], *(torch.ones_like(third) for third in crossed[2:])]
            more = (drawn, plain) if len(dtypes) > _PAIR else (drawn,)
            operands = tuple(torch.cat(parts) for parts in zip(crossed, *more, strict=True))
        #: Where the values of a usual size begin.
        self.usual = len(operands[0])
        usual = tuple(values.usual(d, 50 + place) for place, d in enumerate(dtypes))
        operands = tuple(torch.cat(pair) for pair in zip(operands, harmless(operation, usual), strict=True))
        # An odd number: the last thread of those that compute four has less.
        odd = len(operands[0]) - 1 + len(operands[0]) % 2
        self.operands = tuple(operand[:odd].clone() for operand in operands)

    def scalar_parts(self, *, first: bool) -> Iterator[Tensor]:
        """Yield which pairs have one value of the first operand, or of the second, a few times."""
        rows, columns = self.extents
        for place in dict.fromkeys((0, columns // 3, columns // 2, max(columns - 2, 0))):
            if first:
                part = torch.arange(columns) + min(place, rows - 1) * columns
            else:
                part = torch.arange(rows) * columns + place
            yield part[part < len(self.operands[0])]

    def broadcast_part(self, *, first: bool) -> tuple[Tensor, int]:
        """Return the pairs in the order that repeats an operand, and the length of its period."""
        rows, columns = self.extents
        if first:
            grid = torch.arange(rows)[None] * columns + torch.arange(columns)[:, None]
            part, period = grid.flatten(), rows
        else:
            part, period = torch.arange(self.cross), columns
        lacking = part >= len(self.operands[0])
        if bool(lacking.any()):
            # A pair may be left out, so that their number is odd: its round is left out, too.
            part = part[: int(lacking.to(torch.int8).argmax()) // period * period]
        return part, period

    @functools.cached_property
    def expected(self) -> Expected:
        """The reference of all values."""
        return expect(self.operation, self.operands, self.parameters)


def select_defined(operation: str, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of two operands that appear in some defined pair: some kernels loop on the rest."""
    pairs = (first.repeat_interleave(len(second)), second.repeat(len(first)))
    out = reference.leave_out(operation, pairs)
    if out is None or bool(out.all()):
        return first, second
    table = out.view(len(first), len(second))
    return first[~table.all(1)], second[~table.all(0)]


def harmless(operation: str, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the operands with ones where nothing is defined."""
    out = reference.leave_out(operation, operands)
    if out is None:
        return operands
    return tuple(torch.where(out, torch.ones_like(operand), operand) for operand in operands)


def expect(
    operation: str, operands: tuple[Tensor, ...], parameters: tuple[float, ...], unmoved: Container[str] = UNMOVED
) -> Expected:
    """Return the reference of an operation, and by how much it may be off; not by the rounding of ``unmoved`` ones."""
    out = reference.leave_out(operation, operands)
    # Where nothing is defined the reference is not called: it may trap or loop.
    used = harmless(operation, operands)
    floating = any(o.dtype.is_floating_point or o.dtype.is_complex for o in operands)
    comparing = operation in unmoved or operation.startswith(("logical", "is", "bitwise"))
    value, wide = _evaluate(operation, used, parameters)
    denormal = [judging.is_denormal(operand) for operand in used]
    flushed = None
    if bool(torch.stack(denormal).any()):
        kept = tuple(
            torch.where(d, torch.copysign(torch.zeros_like(o), o), o) if bool(d.any()) else o
            for o, d in zip(used, denormal, strict=True)
        )
        flushed, _ = _evaluate(operation, kept, parameters)
    moves = None
    if (floating or value.dtype.is_floating_point) and not comparing and value.dtype != torch.bool:
        real = [o if o.is_complex() else o.double() for o in wide]
        moved = [
            reference.evaluate(operation, (*real[:at], moved_operand, *real[at + 1 :]), parameters)
            for at in range(len(real))
            for moved_operand in judging.nudge(real[at])
        ]
        if operation != "nextafter":
            moves = judging.slack(value, tuple(moved)) + reference.cancelled_terms(operation, real)
    return Expected(operands, value, moves, out, flushed)


def _evaluate(
    operation: str, operands: tuple[Tensor, ...], parameters: tuple[float, ...]
) -> tuple[Tensor, list[Tensor]]:
    """Return an operation's reference, and the operands in the precision of its computation."""
    if operation == "nextafter":
        # Of bits: it has no wider precision.
        return reference.evaluate(operation, operands, ()).double(), [o.double() for o in operands]
    wide = [o.to(reference.wide(o.dtype)) if o.dtype != torch.bool else o for o in operands]
    value = reference.evaluate(operation, tuple(wide), parameters)
    if value.dtype == torch.float32:
        # Integers whose function is a float's: exact in double.
        wide = [o.double() for o in wide]
        value = reference.evaluate(operation, tuple(wide), parameters)
    return value, wide


def dtypes_of(named: kernel_names.Named, kernel: Kernel) -> tuple[torch.dtype | None, tuple[torch.dtype, ...]]:
    """Return the dtypes of the result and of the operands; None: the host chooses that of the result.

    Raises:
        Unfit: a dtype that torch has not, or none in the name.
    """
    kinds = [DTYPES[word] for word in named.types if word in DTYPES]
    if len(kinds) < len(named.types) or not kinds:
        raise Unfit(f"a dtype that is not driven: {' '.join(named.types)}")
    operands = [a for a in kernel.buffers if a.name in OPERANDS]
    if not operands or not any(a.name in _OUTPUTS for a in kernel.buffers):
        raise Unfit("its arguments are not those of a pointwise kernel")
    first = kinds[0]
    if named.operation == "where":
        return first, (torch.bool, first, first)
    if "castout" in named.form:
        return None, (first,) * len(operands)
    return first, (kinds[1] if len(kinds) > 1 else first,) * len(operands)


class Driver:
    """Calls the kernels of one operation; values and references are shared between them."""

    def __init__(self) -> None:
        self._cases: dict[Any, PointwiseCase] = {}

    def case(self, operation: str, dtypes: tuple[torch.dtype, ...]) -> PointwiseCase:
        """Return the values of an operation for these dtypes."""
        key = operation, dtypes
        if key not in self._cases:
            parameters = reference.parameters(operation, dtypes[0])
            self._cases[key] = PointwiseCase(operation, dtypes, parameters)
        return self._cases[key]

    def judge(self, named: kernel_names.Named, kernel: Kernel) -> Judged:
        """Run a kernel over all values, and compare.

        Raises:
            Unfit: it cannot be called.
            KernelError: it cannot be run.
        """
        if reference.function(named.operation) is None:
            raise Unfit("no reference for the operation")
        result, sources = dtypes_of(named, kernel)
        case = self.case(named.operation, sources)
        try:
            wanted = case.expected
        except (RuntimeError, TypeError, NotImplementedError, KeyError) as error:
            raise Unfit(f"no reference: {str(error).splitlines()[0][:80]}") from error
        if len(named.types) == 1 and "cast" in named.form and "castout" not in named.form:
            result = _functors_dtype(sources[0], wanted.value.dtype)
        judged: list[Judged] = []
        for call in self._calls(named, kernel, case, result):
            got = run(named, kernel, call, case.parameters)
            selected = _select(wanted, call.part)
            if got.is_complex() and not selected.value.is_complex():
                # The host takes the real part (abs, angle).
                got = torch.view_as_real(got)[..., 0].contiguous()
            elif selected.value.is_complex() and not got.is_complex():
                raise Unfit("a real result of a complex function")
            if result is None:
                got = _before_cast(got, selected.value, sources[0])
            allowed = reference.allowed_units(named.operation, got.dtype)
            judgement = judging.judge(selected, got, allowed)
            if judgement.wrong:
                selected = with_plain(selected, case.operation, case.parameters, got.dtype)
                judgement = judging.judge(selected, got, allowed)
            usual = call.part >= case.usual
            if judgement.wrong and bool(usual.any()):
                among = judging.judge(_select(selected, usual.nonzero().flatten()), got[usual], allowed)
                judgement = msgspec.structs.replace(judgement, usual=among.wrong / among.compared)
            judged.append(judgement)
        return _together(judged)

    def _calls(
        self, named: kernel_names.Named, kernel: Kernel, case: PointwiseCase, result: torch.dtype | None
    ) -> Iterator[PointwiseCall]:
        """Yield what the kernel is called with, so that all values are tried."""
        dtype = result or _cast_to(case)
        roles = [argument.name for argument in kernel.buffers if argument.name in OPERANDS]
        every = case.operands
        if "scalar" in roles and case.arity == _PAIR:
            for part in case.scalar_parts(first=roles[0] == "scalar"):
                yield PointwiseCall(dtype, tuple(operand[part] for operand in every), part)
        elif "broadcast" in roles:
            part, period = case.broadcast_part(first=roles[0] == "broadcast")
            chosen = [operand[part] for operand in every]
            small = roles.index("broadcast")
            chosen[small] = chosen[small][:period].clone()
            yield PointwiseCall(dtype, tuple(chosen), part)
        elif named.form.startswith(("strided", "inner")):
            count = len(every[0]) // _BLOCK * _BLOCK
            # Few values, as of bool, are repeated.
            part = torch.arange(count or _BLOCK) % len(every[0])
            yield PointwiseCall(dtype, tuple(operand[part] for operand in every), part, strided=True)
        else:
            for few in (len(every[0]), 1, 3, 33) if named.form == "dense" else (len(every[0]),):
                part = torch.arange(min(few, len(every[0])))
                yield PointwiseCall(dtype, tuple(operand[part] for operand in every), part)


def _cast_to(case: PointwiseCase) -> torch.dtype:
    """Return the dtype that the host requests for a cast result."""
    first, value = case.operands[0].dtype, case.expected.value.dtype
    if first.is_complex:
        return torch.complex64
    if value == torch.bool:
        return torch.uint8
    return torch.float32 if value.is_floating_point else torch.int64


def _functors_dtype(source: torch.dtype, value: torch.dtype) -> torch.dtype:
    """Return the dtype of a functor's result, which the names of the casting kernels up to 2.12 leave out."""
    if value == torch.bool:
        return value
    if value.is_complex and not source.is_complex:
        return torch.complex32 if source == torch.float16 else torch.complex64
    is_whole = not (source.is_floating_point or source.is_complex)
    return torch.float32 if is_whole and value.is_floating_point else source


def with_plain(wanted: Expected, operation: str, parameters: tuple[float, ...], dtype: torch.dtype) -> Expected:
    """Add what plain arithmetic gives in the kernel's precision, which is no defect either: float32 for halves."""
    inexact = dtype.is_floating_point or dtype.is_complex
    if not inexact or any(o.is_complex() != dtype.is_complex for o in wanted.inputs):
        return wanted
    operands = [o if dtype.is_complex else o.float() for o in wanted.inputs]
    plain = reference.plain(operation, tuple(operands), parameters)
    if plain is None:
        return wanted
    return msgspec.structs.replace(wanted, plain=plain.to(dtype).to(wanted.value.dtype))


def _select(whole: Expected, part: Tensor) -> Expected:
    inputs, *rest = (getattr(whole, name) for name in Expected.__struct_fields__)
    chosen: list[Any] = [None if each is None else each[part] for each in rest]
    return Expected(tuple(operand[part] for operand in inputs), *chosen)


def _before_cast(got: Tensor, value: Tensor, source: torch.dtype) -> Tensor:
    """Return what a functor gave before it was cast: a functor of half gives half."""
    if got.dtype == torch.uint8 or source == torch.complex64:
        return got
    if source == torch.complex32 and not value.is_complex():
        return got.to(torch.float16)
    kept = source.is_complex or source.is_floating_point or not value.is_floating_point()
    return got.to(source) if kept and source != torch.bool else got


def _together(judged: Sequence[Judged]) -> Judged:
    first = next((j for j in judged if j.wrong), judged[0])
    return msgspec.structs.replace(
        first,
        compared=sum(j.compared for j in judged),
        wrong=sum(j.wrong for j in judged),
        ulps=max(j.ulps for j in judged),
    )


def _laid(operand: Tensor, *, inner: bool) -> Tensor:
    """Return the values in memory that is neither contiguous nor at its beginning; the same order."""
    count = operand.numel() // _BLOCK
    step = 1 if inner else 2
    room = torch.zeros(count * (_BLOCK * step + 6) + 5, dtype=operand.dtype)
    row = _INNER * step + 3
    laid = room.as_strided((2, count, _INNER), (row, 2 * row, step), 5)
    laid.copy_(operand.view(2, count, _INNER))
    return laid


def run(named: kernel_names.Named, kernel: Kernel, call: PointwiseCall, parameters: tuple[float, ...]) -> Tensor:
    """Run a pointwise kernel; the results in the order of the operands' values.

    Raises:
        Unfit: an argument that no host function passes.
        KernelError: the kernel writes where it must not, or cannot be run.
    """
    count = max(operand.numel() for operand in call.operands)
    size = torch.empty(0, dtype=call.result).element_size()
    memory = torch.full((count * size + _GUARDED,), _GUARD, dtype=torch.uint8)
    sizes: tuple[int, ...] = (count,)
    if call.strided:
        inner = named.form.startswith("inner")
        laid = [_laid(operand, inner=inner) for operand in call.operands]
        out = _laid(torch.zeros(count, dtype=call.result), inner=inner)
        sizes = (_INNER, count // _BLOCK, 2)
    else:
        laid = [operand.contiguous() for operand in call.operands]
        out = memory[: count * size].view(call.result)
    roles = [argument.name for argument in kernel.buffers if argument.name in OPERANDS]
    walks = walk((out, *laid)) if call.strided else Iteration(sizes, ((1,),) * (len(laid) + 1))
    bound = bind(kernel, dict(zip(roles, laid, strict=True)), out, walks, parameters)
    kernel.run({name: address(tensor) for name, tensor in bound.items()}, grid(kernel, sizes))
    if not bool((memory[count * size :] == _GUARD).all()):
        raise KernelError("the kernel writes beyond the end of its result")
    return out.clone(memory_format=torch.contiguous_format).flatten()


def bind(
    kernel: Kernel, operands: dict[str, Tensor], out: Tensor, walks: Iteration, parameters: tuple[float, ...]
) -> dict[str, Tensor]:
    """Return the memory of each buffer of a pointwise kernel.

    Args:
        kernel: the kernel.
        operands: by the names of the kernel's arguments, in their order.
        out: the memory of the result.
        walks: the extents, and the strides of the result and of each operand.
        parameters: of the functor's struct, or its one number.

    Raises:
        Unfit: an argument that no host function passes.
    """
    memory: dict[str, Tensor] = {}
    tensors = operands | dict.fromkeys(_OUTPUTS, out)
    sizes = walks.sizes
    steps = dict(zip(operands, walks.strides[1:], strict=True))
    steps |= dict.fromkeys(_OUTPUTS, walks.strides[0])
    types = {argument.name: argument.type for argument in kernel.buffers}
    words = _words(list(operands.values()), out, sizes)
    for argument in kernel.buffers:
        name = argument.name
        if name in tensors:
            memory[name] = tensors[name]
        elif name == "alpha":
            memory[name] = pack(argument.type, argument.fields, argument.size, parameters)
        elif name in {"sizes", "outer_sizes"} and argument.type == "long":
            memory[name] = numbers(*sizes[name == "outer_sizes" :], size=8)
        elif name.endswith("_strides"):
            operand = name.removesuffix("_strides").removesuffix("_outer")
            # Kernels of typed memory (unary ones up to 2.12) count elements, those of void bytes.
            width = 1 if types[operand] != "void" else tensors[operand].element_size()
            strides = [stride * width for stride in steps[operand]]
            memory[name] = numbers(*strides[name.endswith("_outer_strides") :], size=8)
        elif name == "broadcast_numel":
            memory[name] = numbers(operands["broadcast"].numel(), size=8)
        elif name in words:
            memory[name] = numbers(*words[name], *[0] * (4 - len(words[name])))
        else:
            raise Unfit(f"nothing is known of the argument {name}")
    return memory


def _words(operands: list[Tensor], out: Tensor, extents: tuple[int, ...]) -> dict[str, list[int]]:
    """Return the arguments that are a few 32-bit numbers."""
    sizes = [operand.element_size() for operand in operands]
    types = [_SCALAR_TYPES[operand.dtype] for operand in operands]
    size, kind = out.element_size(), _SCALAR_TYPES[out.dtype]
    count, dims = math.prod(extents), len(extents)
    return {
        "numel": [count],
        "ndim": [dims],
        "size_outtype": [size, kind],
        "size_outtype_numel": [size, kind, count],
        "sizes_types": [*sizes, *types],
        "sizes": [*sizes, size],
        "types": [*types, kind],
        "ndim_types": [dims, *types, kind],
        "ndim_outtype": [dims, kind],
        "ndim_outer_inner": [dims - 1, extents[0]],
        "ndimO_inner_elem_outtype": [dims - 1, extents[0], size, kind],
    }


def grid(kernel: Kernel, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of the grid: as many as the thread's position has."""
    position = next((a for a in kernel.arguments if not a.is_buffer), None)
    if position is None:
        raise Unfit("the kernel takes no position")
    count = math.prod(sizes)
    if any("numel" in a.name and a.name != "broadcast_numel" for a in kernel.buffers):
        count = -(-count // _EACH)
    first, *rest = sizes
    if position.type == "uint2":
        return first, math.prod(rest)
    if position.type == "uint3":
        second, *more = rest or (1,)
        return first, second, math.prod(more)
    return (count,)
