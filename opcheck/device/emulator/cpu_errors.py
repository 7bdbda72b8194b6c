"""What a Mac says where the CPU's kernel, which computes in place of one of MPS, raises an error of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.common.versions import Span, Version
from opcheck.simulator.routes import end_of
from opcheck.simulator.shapes import NotSimulatedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The CPU itself runs these on a Mac: its texts are the Mac's.
_RUN_BY_THE_CPU = frozenset({None, "cpu_fallback", "cpu_only"})

#: ATen/Dispatch.h, AT_DISPATCH_SWITCH.
_NOT_IMPLEMENTED = re.compile(r"\"(?P<kernel>\w+)\" not implemented for '(?P<dtype>\w+)'")

#: Other texts that the CPU's kernels alone have (Sorting.cpp), or that name such a kernel (OperatorEntry.cpp).
_OF_THE_CPU = re.compile(
    r"not supported on CPU|does not support .* on CPU|\bon CPU (?:does|is) not"
    r"|'CPU' backend|\w_cpu(?:_\w*)?\b"
)

#: How shared code names a tensor's type: ATen/core/TensorBase.h, toString.
_TYPE_NAME = re.compile(r"\btorch\.(?P<plain>[A-Z]\w*)Tensor\b|\bCPU(?P<full>[A-Z]\w*)Type\b")

_INTEGERS = frozenset({"Byte", "Char", "Short", "Int", "Long"})
_HISTOGRAMS = re.compile(r"aten::(?:histc|histogram\.|_histogramdd_from_bin_)")
_UNIFORM = re.compile(r"aten::(?:uniform_?|rand(?:_like)?)(?:\.|$)")
_RANGES = re.compile(r"aten::a?range\b")


class CpuRefusesError(NotSimulatedError, NotImplementedError):
    """The CPU's kernel refuses a call, mostly for its dtype, and what a Mac's kernel does is not known.

    A program that catches PyTorch's NotImplementedError, or RuntimeError, goes on as it would after that.
    """


class _MacName(NamedTuple):
    """A kernel's name in the text with which a source of MPS refuses a dtype."""

    operators: re.Pattern[str]
    #: as the text names them
    dtypes: frozenset[str]
    name: str
    releases: Span


def _from(since: str, until: str | None = None) -> Span:
    return Span(since=Version.parse(since), until=Version.parse(until) if until else None)


#: aten/src/ATen/native/mps/operations: AT_DISPATCH_* of the sources, by the dtypes that they leave out.
_MAC_NAMES = (
    # HistogramKernel.mm took float32 alone up to 2.11, and no integers up to 2.12 (it has no Metal kernel of theirs).
    _MacName(re.compile(r"aten::histc"), frozenset({"Bool"}), "histc_mps", _from("2.15")),
    _MacName(_HISTOGRAMS, _INTEGERS, "histogram_mps", _from("2.1", "2.13")),
    _MacName(_HISTOGRAMS, frozenset({"Bool"}), "histogram_mps", _from("2.1")),
    # RangeFactories.mm, with AT_DISPATCH_MPS_TYPES of TensorFactory.h
    _MacName(
        _RANGES,
        frozenset({"Bool", "ComplexHalf", "ComplexFloat"}),
        "arange_mps",
        _from("1.13"),
    ),
    # Distributions.mm, uniform_mps_, which has the name from DistributionTemplates.h
    _MacName(_UNIFORM, _INTEGERS | {"Bool"}, "check_uniform_bounds", _from("1.13")),
)

#: HistogramKernel.mm, histogramdd_linear_kernel: before it dispatches, and after aminmax; histc does not come by there.
_FLOAT32_ALONE = re.compile(r"aten::(?:histogram\.bin_ct|_histogramdd_from_bin_cts)")
_FLOAT32_ALONE_SINCE = Version.parse("2.12")


def on_a_mac(
    error: Exception,
    operator: str,
    arguments: tuple[Any, ...],
    registrations: Mapping[str, str],
    release: Version,
) -> Exception:
    """The error that the program gets in place of the CPU's ``error``; often the same."""
    text = str(error)
    value = registrations.get(operator)
    if end_of(value, registrations) in _RUN_BY_THE_CPU or not isinstance(error, RuntimeError):
        return error
    refused = _NOT_IMPLEMENTED.match(text)
    if refused is None and not _OF_THE_CPU.search(text):
        named = _TYPE_NAME.sub(lambda name: f"MPS{name['plain'] or name['full']}Type", text)
        return error if named == text else type(error)(named)
    dtypes = refused["dtype"] if refused else ", ".join(sorted({*_dtypes(arguments)}))
    if refused:
        if (
            release >= _FLOAT32_ALONE_SINCE
            and _FLOAT32_ALONE.match(operator)
            and dtypes in _INTEGERS | {"Half", "BFloat16"}
        ):
            return RuntimeError("histogram is only supported for float32")
        for known in _MAC_NAMES:
            if (
                known.operators.match(operator)
                and dtypes in known.dtypes
                and release in known.releases
            ):
                return type(error)(f"\"{known.name}\" not implemented for '{dtypes}'")
    return CpuRefusesError(
        f"{operator} of {dtypes} goes to a kernel of MPS; this machine's CPU computes in its place, and "
        "the CPU's kernel refuses: whether a Mac's does, and in which words, is not known"
    )


def _dtypes(value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        yield str(value.dtype).removeprefix("torch.")
    elif isinstance(value, torch.dtype):
        yield str(value).removeprefix("torch.")
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _dtypes(item)
