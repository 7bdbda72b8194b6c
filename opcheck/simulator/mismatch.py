"""What a Mac says of a call whose tensors are on two devices; each kernel checks, and words it, by itself.

MPS has no check that is generated for every kernel, as CUDA has (torchgen/gen.py: ``device_guard`` is for CUDA and
XPU): what is not in the table here is taken to say what TensorIterator.cpp says, which most calls go through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.common.versions import Span, Target, Version
from opcheck.simulator.dispatch_context import current
from opcheck.simulator.tensor import is_on_mps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLAIN = (
    "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
)
#: mps/OperationUtils.mm, ``Placeholder``
_PLACEHOLDER = "Placeholder storage has not been allocated on MPS device!"
#: mps/OperationUtils.h, ``mtl_setBuffer``
_PASSED = "Passed CPU tensor to MPS op"
_V2_0, _V2_2, _V2_4 = Version(2, 0), Version(2, 2), Version(2, 4)
_V2_12, _V2_14 = Version(2, 12), Version(2, 14)

_SELECTING = ("aten::embedding", "aten::index_select")


class _Text(NamedTuple):
    """One kernel's words."""

    ops: tuple[str, ...]
    span: Span
    text: Callable[[Any], str | None]


def _on_cpu(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and not is_on_mps(tensor)


def _linear(tensors: Any) -> str | None:
    # mps/operations/Linear.mm, ``_mps_linear``: in this order.
    names = ("input", "weight", "bias")
    for name, tensor in zip(names, tensors, strict=False):
        if _on_cpu(tensor):
            return f"Tensor for argument {name} is on cpu but expected on mps"
    return None


def _checked(kernel: str, *names: str) -> Callable[[Any], str | None]:
    """LinearAlgebra.mm calls ``checkAllSameGPU`` (ATen/TensorUtils.cpp), which compares each with the result."""

    def text(tensors: Any) -> str | None:
        if _on_cpu(tensors[-2]):
            return None  # the result would be allocated beside the first factor, on the CPU
        for position, (name, tensor) in enumerate(zip(names, tensors, strict=False), start=1):
            if _on_cpu(tensor):
                return (
                    f"Tensor for argument #{position} '{name}' is on CPU, but expected it to be on "
                    f"GPU (while checking arguments for {kernel})"
                )
        return None

    return text


def _convolution(tensors: Any) -> str:
    # native/Convolution.cpp, check_input_same_type_as_parameters
    kinds = [_kind(tensor) for tensor in tensors]
    other = "weight" if kinds[0] != kinds[1] else "bias"
    return (
        f"Input type ({kinds[0]}) and {other} type ({kinds[1 if other == 'weight' else 2]}) "
        "should be the same"
    )


def _kind(tensor: torch.Tensor) -> str:
    """ATen/core/DeprecatedTypeProperties.cpp, ``toString``: a CPU type goes by its Python name."""
    name = _scalar_type(tensor)
    return f"torch.{name}Tensor" if _on_cpu(tensor) else f"MPS{name}Type"


def _scalar_type(tensor: torch.Tensor) -> str:
    """c10/core/ScalarType.h: ``Long`` for int64."""
    name = torch.empty(0, dtype=tensor.dtype, device="cpu").type()
    return name.removeprefix("torch.").removesuffix("Tensor")


def _masked_fill(tensors: Any) -> str:
    places = ["cpu" if _on_cpu(tensor) else "mps:0" for tensor in tensors]
    return (
        "expected self and mask to be on the same device, but got mask on "
        f"{places[1]} and self on {places[0]}"
    )


def _dot(tensors: Any) -> str:
    places = ["cpu" if _on_cpu(tensor) else "mps:0" for tensor in tensors]
    return f"Expected all tensors to be on the same device. Found: {', '.join(places)}"


def _cat(tensors: Any) -> str:
    # mps/operations/Shape.mm, cat_out_mps: each beside the last that is not skipped; since 2.12 no check is left.
    places = ["cpu" if _on_cpu(tensor) else "mps:0" for tensor in tensors]
    other = next(place for place in places if place != places[-1])
    return (
        "torch.cat(): all input tensors must be on the same device. "
        f"Received {other} and {places[-1]}"
    )


def _always(text: str) -> Callable[[Any], str]:
    return lambda _tensors: text


#: TensorAdvancedIndexing.cpp, check_indices_on_cpu_or_selfdevice; github.com/pytorch/pytorch/issues/81051
_INDICES = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"

#: PackedSequence.cpp: the lengths, or the sizes of the batches, are their second tensor.
_TAKES_LENGTHS = frozenset({"aten::_pack_padded_sequence", "aten::_pad_packed_sequence"})

_TEXTS = (
    _Text(("aten::linear",), Span(since=_V2_4), _linear),
    _Text(("aten::linear",), Span(until=_V2_4), _always(_PLACEHOLDER)),
    # Indexing.mm, index_select_out_mps: a kernel of MPSGraph, and since 2.14 one of Metal's.
    _Text(_SELECTING, Span(until=_V2_14), _always(_PLACEHOLDER)),
    _Text(_SELECTING, Span(since=_V2_14), _always(_PASSED)),
    _Text(("aten::cat",), Span(since=_V2_0, until=_V2_12), _cat),
    _Text(("aten::cat",), Span(since=_V2_12), _always(_PASSED)),
    _Text(("aten::mm",), Span(), _checked("mm", "mat1", "mat2")),
    _Text(("aten::addmm",), Span(), _checked("addmm_out_mps_impl", "self", "mat1", "mat2")),
    _Text(("aten::convolution",), Span(), _convolution),
    _Text(("aten::masked_fill_.Scalar", "aten::masked_fill_.Tensor"), Span(), _masked_fill),
    _Text(("aten::dot", "aten::vdot"), Span(since=_V2_2), _dot),
)


def misplaced_lengths(op: str, tensors: Sequence[torch.Tensor]) -> str | None:
    """What PackedSequence.cpp, ``checkLongTensor``, says of lengths that are not on the CPU."""
    if op not in _TAKES_LENGTHS or _on_cpu(tensors[1]):
        return None
    return (
        "'lengths' argument should be a 1D CPU int64 tensor, but got "
        f"{tensors[1].dim()}D mps:0 {_scalar_type(tensors[1])} tensor"
    )


#: operators whose indices may be on the CPU, with the position of the values that they write.
_INDEXED = {
    "aten::index.Tensor": None,
    "aten::_unsafe_index.Tensor": None,
    "aten::index_put_": 2,
    "aten::index_put": 2,
    "aten::_index_put_impl_": 2,
    "aten::_unsafe_index_put": 2,
}


def misplaced_indices(op: str, args: Sequence[Any]) -> tuple[str, str] | None:
    """What TensorAdvancedIndexing.cpp says of indices, or of values, that are elsewhere than the tensor.

    Indices of the CPU are moved (``make_info``), and so is a value without dimensions (``_index_put_impl_``).
    """
    if op not in _INDEXED:
        return None
    place = _on_cpu(args[0])
    if place and any(isinstance(index, torch.Tensor) and not _on_cpu(index) for index in args[1]):
        return "indices_on_mps", _INDICES
    position = _INDEXED[op]
    if position is not None and args[position].dim() and _on_cpu(args[position]) is not place:
        return "device_mismatch", _PLAIN
    return None


def text_of(op: str, tensors: Sequence[torch.Tensor]) -> str:
    """What the target says of these tensors, which are on two devices; in the order of the schema."""
    row = current().ask(_row, op)
    return _PLAIN if row is None else _TEXTS[row].text(tensors) or _PLAIN


def _row(target: Target, op: str) -> int | None:
    rows = (n for n, row in enumerate(_TEXTS) if op in row.ops and target.torch in row.span)
    return next(rows, None)
