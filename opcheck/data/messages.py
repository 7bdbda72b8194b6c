"""The texts that a Mac prints when it has no kernel, by torch release.

Read out of ``aten/src/ATen/mps/MPSFallback.mm`` and
``aten/src/ATen/core/dispatch/OperatorEntry.cpp``, and checked against the strings in the released
macOS wheels.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from opcheck.common.versions import Span, Version

_AS_A_FIX = (
    "As a temporary fix, you can set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` "
    "to use the CPU as a fallback for this op. "
    "WARNING: this will be slower than running natively on MPS."
)
_MENTION = (
    "please comment on https://github.com/pytorch/pytorch/issues/141287 and mention use-case, "
    "that resulted in missing op as well as commit hash {commit}."
)


class _Text(NamedTuple):
    """A wording, the releases that print it, and the operators that it is printed for."""

    span: Span
    text: str
    #: the namespace of the operators; empty: every operator that no other row of the span names.
    namespace: str = ""


_NOT_IMPLEMENTED = (
    _Text(
        Span(since=Version(2, 11)),
        "The distributed operator '{op}' is not currently implemented for the MPS device. "
        "If you want this op to be considered for addition " + _MENTION + " "
        "Please note, that distributed operators can not fall back to CPU",
        namespace="c10d",
    ),
    _Text(
        Span(since=Version(2, 6)),
        "The operator '{op}' is not currently implemented for the MPS device. "
        "If you want this op to be considered for addition " + _MENTION + " " + _AS_A_FIX,
    ),
    _Text(
        Span(until=Version(2, 6)),
        "The operator '{op}' is not currently implemented for the MPS device. "
        "If you want this op to be added in priority during the prototype phase of this feature, "
        "please comment on https://github.com/pytorch/pytorch/issues/77764. " + _AS_A_FIX,
    ),
)


def not_implemented(op: str, torch: Version, commit: str) -> str:
    """Return the NotImplementedError of an operator without a kernel while the fallback variable is unset.

    Args:
        op: the overload that the Mac names.
        torch: the release line.
        commit: the commit that the release was built from, as its text quotes it.
    """
    namespace = op.partition("::")[0]
    text = next(
        row.text
        for row in _NOT_IMPLEMENTED
        if torch in row.span and row.namespace in {"", namespace}
    )
    return text.format(op=op, commit=commit)


def fallback_warning(op: str) -> str:
    """Return the UserWarning of a fallback, which has the same wording in every release.

    A process prints it for its first fallback only, unless ``torch.set_warn_always(True)``.
    Python adds the place in MPSFallback.mm, which moves from release to release.
    """
    return (
        f"The operator '{op}' is not currently supported on the MPS backend "
        "and will fall back to run on the CPU. This may have performance implications."
    )


def no_cpu_kernel(op: str) -> str:
    """Return the first sentence of the error of a fallback to an operator without a CPU kernel."""
    return no_kernel_for(op, "CPU")


def no_kernel_for(op: str, backend: str) -> str:
    """Return the first sentence of the dispatcher's error for a backend without a kernel or fallback."""
    return f"Could not run '{op}' with arguments from the '{backend}' backend."


#: MPSAllocator.mm, ``format_size``: its own up to 2.7, c10's since (the strings of the wheels of 2.0 to 2.8).
_UNITS = (
    (Span(until=Version(2, 8)), (" bytes", " KB", " MB", " GB")),
    (Span(since=Version(2, 8)), (" bytes", " KiB", " MiB", " GiB")),
)


def out_of_memory(allowed: int, torch: Version) -> str:
    """Return the RuntimeError of an allocation above the high watermark; ``...`` replaces unknown figures.

    Args:
        allowed: bytes that may be allocated in all.
        torch: the release line.
    """
    return (
        "MPS backend out of memory (MPS allocated: ..., other allocations: ..., "
        f"max allowed: {_size(allowed, torch)}). Tried to allocate ... on ... pool. "
        "Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
        "(may cause system failure)."
    )


def invalid_buffer_size(size: int, torch: Version) -> str:
    """Return the RuntimeError of a tensor that is larger than Metal's largest buffer."""
    return f"Invalid buffer size: {_size(size, torch)}"


def _size(number: int, torch: Version) -> str:
    units = next(names for span, names in _UNITS if torch in span)
    power = min(max(number.bit_length() - 1, 0) // 10, 3)
    return f"{number / 1024**power:.2f}{units[power]}" if power else f"{number}{units[0]}"


_SCAN = "`opcheck scan PATH` lists every such line, without running anything"
_CHOOSE = 'choose the device at run time: "mps" if torch.backends.mps.is_available(); ' + _SCAN
_LEAVE_OUT = f"leave it out where torch.cuda.is_available() is False; {_SCAN}"


class _Lacking(NamedTuple):
    """An error text of a torch that was built without CUDA, as every macOS wheel is, and its remedy."""

    pattern: re.Pattern[str]
    hint: str


#: In the wheels of 1.13 to 2.15: torch/cuda/__init__.py, torch/cuda/{streams,graphs,nvtx}.py, torch/_utils.py,
#: torch/serialization.py, torch/distributed/distributed_c10d.py, torch/utils/cpp_extension.py, torch/xpu/__init__.py;
#: aten/src/ATen/detail/CUDAHooksInterface.h, torch/csrc/tensor/python_tensor.cpp, c10/core/impl/VirtualGuardImpl.h.
_LACKING = tuple(
    _Lacking(re.compile(pattern), hint)
    for pattern, hint in (
        (
            r"Attempting to deserialize object on (?:a )?CUDA device",
            f'torch.load(file, map_location="mps"), or "cpu"; {_SCAN}',
        ),
        (r"Distributed package doesn't have NCCL", f'backend="gloo"; {_SCAN}'),
        (r"No module named 'torch\.hpu'|Torch not compiled with (?:CUDA|XPU|MTIA)", _CHOOSE),
        (
            # The emulation itself raises this error for mps.
            r"PyTorch (?:was compiled without CUDA support|is not linked with support for (?!mps))",
            _CHOOSE,
        ),
        (r"Cannot get (?:CUDA|XPU|HIP|MTIA) generator without", _CHOOSE),
        (r"Device type (?:CUDA|XPU) is not supported for torch\.Generator", _CHOOSE),
        (r"Found no NVIDIA driver|No CUDA GPUs are available|CUDA driver initialization", _CHOOSE),
        # torch/csrc/autograd/python_variable_methods.cpp: since 2.5 the index in x.cuda(0) is one of MPS.
        (r"Invalid device, must be (?:cuda|xpu) device", _CHOOSE),
        (r"torch\.(?:cuda|xpu)\.\w+ requires \w+ support", _LEAVE_OUT),
        (
            r"Tried to instantiate dummy base class (?:Stream|Event|_?(?:CUDA|Cuda|Xpu|Mem)\w+)",
            _LEAVE_OUT,
        ),
        (r"'torch\._C' has no attribute '_(?:cuda|nvtx|xpu|nccl)_?\w*'", _LEAVE_OUT),
        (r"'torch\.mps' has no attribute 'current_device'", _LEAVE_OUT),
        (r"with arguments from the '(?:CUDA|XLA|XPU|HPU)' backend", _CHOOSE),
        (r"NVTX functions not installed", _LEAVE_OUT),
        (r"CUDA_HOME environment variable is not set", _LEAVE_OUT),
    )
)


def without_cuda(text: str) -> str:
    """Return the remedy for an error of a torch without CUDA; empty for any other error."""
    return next((row.hint for row in _LACKING if row.pattern.search(text)), "")


#: Texts of checks that ask for the device and call no operator: torch/optim/optimizer.py and adam.py,
#: torch/amp/autocast_mode.py (before 2.5), torch/csrc/utils/tensor_types.cpp, ATen/core/Generator.h and
#: ATen/Context.h (``check_rng_state``), torch/csrc/autograd/python_variable.cpp (``THPVariable_set_grad``).
_REFUSED = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (
            r"`fused=True` requires all the params to be floating point Tensors of supported",
            "leave fused=True out, or use torch 2.5 or newer",
        ),
        (
            r"If capturable=True, params and state_steps must be on supported devices",
            "leave capturable=True out: MPS has no graphs to capture",
        ),
        (
            r"User specified (?:an unsupported autocast device_type 'mps'|autocast device_type must be)",
            "use torch 2.5 or newer, or leave autocast out on this device",
        ),
        (
            r"invalid type: 'torch\.mps\.",
            "write x.to(other) or x.to(device, dtype): a type's name works for the CPU and CUDA only",
        ),
        (
            r"RNG state must be a torch\.ByteTensor",
            "move the state to the CPU first: torch.load(file, map_location='mps') moved it",
        ),
        (
            r"Expected a '(?:mps|cpu)' device type for generator but found",
            "make the generator for the device that draws: torch.Generator(device=x.device)",
        ),
        (
            # torch/nn/attention/flex_attention.py, from 2.13 on
            r"FlexAttention does not support backward on MPS",
            "train with scaled_dot_product_attention (attn_implementation=sdpa)",
        ),
        (
            r"attempting to assign a gradient with device type",
            "move the gradient to its parameter's device first",
        ),
    )
)


def refused_on_mps(text: str) -> str:
    """Return the remedy for an error that concerns the device and names no operator; empty for any other error."""
    return next((hint for pattern, hint in _REFUSED if pattern.search(text)), "")
