"""What composite kernels below autograd call on the target: followed once a kind of call, or known from source.

A composite has no verdict of its own: it is judged by these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Span, Target, Version
from opcheck.simulator.dispatch_context import current
from opcheck.simulator.routes import unwrapped
from opcheck.simulator.tensor import is_on_mps, wrap
from opcheck.simulator.tensor_meta import spec_of
from opcheck.tracing.torch_private import dispatch
from opcheck.tracing.torch_private.backend import generator_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.simulator.dispatcher import Call, Simulator
    from opcheck.simulator.routes import Route

_NOTHING: tuple[str, ...] = ()

#: a body that asks for more values than these does not end.
_MOST_GUESSES = 1_000


def _convolution(args: Any, kwargs: Any) -> tuple[str, ...]:
    # aten/src/ATen/native/Convolution.cpp, ``_convolution`` (1.13 to 2.15): ConvBackend::Mps and MpsTranspose;
    # the transposed kernel takes no bias, which is added.
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    transposed = args[6] if len(args) > 6 else kwargs.get("transposed", False)
    if not transposed:
        return ("aten::_mps_convolution",)
    added = ("aten::add_.Tensor",) if bias is not None else _NOTHING
    return ("aten::_mps_convolution_transpose", *added)


def _convolution_backward(args: Any, kwargs: Any) -> tuple[str, ...]:
    transposed = args[7] if len(args) > 7 else kwargs.get("transposed", False)
    kernel = "mps_convolution_transpose_backward" if transposed else "mps_convolution_backward"
    mask = args[10] if len(args) > 10 else kwargs.get("output_mask", (True, True, True))
    bias = ("aten::sum.dim_IntList",) if mask[2] else _NOTHING
    return (f"aten::{kernel}", *bias)


def _grouped_mm(args: Any, kwargs: Any) -> tuple[str, ...]:
    # GroupedMMUtils.h, ``_grouped_mm_fallback`` (2.9 to 2.13): one product for each group, or one batched product.
    second = args[1] if len(args) > 1 else kwargs["mat2"]
    batched = args[0].dim() == 3 and second.dim() == 3
    return ("aten::empty_strided", "aten::bmm.out" if batched else "aten::mm.out")


def _ldexp(product: str) -> Callable[[Any, Any], tuple[str, ...]]:
    # BinaryOps.cpp, ``ldexp`` (2.13 to 2.15): integral exponents have a kernel of their own on the CPU only.
    def calls(args: Any, _kwargs: Any) -> tuple[str, ...]:
        if args[0].dtype in (torch.float16, torch.bfloat16):
            return (
                "aten::empty.memory_format",
                "aten::fill_.Scalar",
                "aten::pow.Tensor_Tensor",
                product,
            )
        return ("aten::pow.Scalar", product)

    return calls


def _has_generic_loop(target: Target) -> bool:
    return target.torch >= Version(2, 9)


def _lfilter_core_loop(_args: Any, _kwargs: Any) -> tuple[str, ...] | None:
    # src/libtorchaudio/lfilter.cpp, ``lfilter_core_generic_loop`` (torchaudio 2.9 to 2.11): these and copy_
    # for each sample.  Earlier ones had no generic loop in C++.
    if not current().ask(_has_generic_loop):
        return None
    return ("aten::as_strided", "aten::bmm", "aten::sub.Tensor")


def _only(*calls: str) -> Callable[[Any, Any], tuple[str, ...]]:
    return lambda _args, _kwargs: calls


#: Bodies that cannot be followed here: they branch on the device at compile time, or call themselves.
CALLS: dict[str, Callable[[Any, Any], tuple[str, ...] | None]] = {
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    # Copy.cpp, ``copy_impl``: mps::mps_copy_ is called directly if either side is on MPS.
    "aten::copy_": _only(),
    # TensorConversions.cpp: an allocation, then copy_.
    "aten::_to_copy": _only("aten::empty_strided"),
    # TensorShape.cpp: aliases of the storage; no kernel runs.
    "aten::detach": _only(),
    "aten::alias": _only(),
    "aten::lift": _only(),
    "aten::lift_fresh": _only(),
    "aten::_conj": _only(),
    "aten::_neg_view": _only(),
    # ComparisonUtils.cpp: compares metadata, and raises where it differs.  torch.export writes it before each cast.
    "aten::_assert_tensor_metadata": _only(),
    # aten/src/ATen/native/Resize.cpp and TensorFactories.cpp: allocation only.
    "aten::empty_like": _only("aten::empty_strided"),
    "aten::new_empty": _only("aten::empty.memory_format"),
    "aten::new_empty_strided": _only("aten::empty_strided"),
    # BatchLinearAlgebra.cpp: allocates, then calls the out form, which has no meta kernel.
    "aten::linalg_lstsq": _only("aten::linalg_lstsq.out"),
    # Pack: loops over the batch on the host, then narrow, cat (PackedSequence.cpp).
    "aten::_pack_padded_sequence": _only("aten::as_strided", "aten::cat"),
    "aten::_grouped_mm": _grouped_mm,
    "aten::ldexp.Tensor": _ldexp("aten::mul.Tensor"),
    "aten::ldexp.out": _ldexp("aten::mul.out"),
    "aten::ldexp_": _ldexp("aten::mul.out"),
    "torchaudio::_lfilter_core_loop": _lfilter_core_loop,
}


#: Bodies of earlier releases, where they call what the installed torch's does not: as the macOS wheels' libraries show.
EARLIER: dict[str, tuple[tuple[Span, tuple[str, ...]], ...]] = {
    # transformers/attention.cpp: ``isneginf``, which had no kernel for MPS before, from 2.6 on.
    "aten::_safe_softmax": (
        (
            Span(since=Version(2, 5), until=Version(2, 6)),
            (
                "aten::_softmax",
                # scalar_tensor's
                "aten::empty.memory_format",
                "aten::fill_.Scalar",
                "aten::eq.Tensor",
                "aten::all.dim",
                "aten::where.self",
            ),
        ),
    ),
    # Loss.cpp: log_sigmoid, whose forward had no kernel for MPS before 2.1, from 2.3 on.
    "aten::binary_cross_entropy_with_logits": (
        (
            Span(until=Version(2, 3)),
            (
                "aten::neg",
                "aten::clamp_min_",
                # 1 - target
                "aten::empty_strided",
                "aten::fill_.Scalar",
                "aten::sub_.Tensor",
                "aten::mul_.Tensor",
                "aten::exp_",
                "aten::sub.Tensor",
                "aten::add_.Tensor",
                "aten::log_",
            ),
        ),
    ),
    # EmbeddingBag.cpp: a kernel of its own from 2.5 on; with sparse gradients MPS ends earlier.
    "aten::_embedding_bag_backward": (
        (Span(until=Version(2, 5)), ("aten::_embedding_bag_dense_backward",)),
    ),
    # BatchLinearAlgebra.cpp: a kernel of its own from 2.3 on.
    "aten::linalg_eigvals.out": ((Span(until=Version(2, 3)), ("aten::linalg_eig",)),),
    # group_norm.cpp, math_group_norm: a batch norm, where 2.13 takes var_mean.  Python kernels from 2.0 to 2.12.
    "aten::native_group_norm": (
        (Span(until=Version(2, 0)), ("aten::view", "aten::native_batch_norm")),
    ),
    # UnaryOps.cpp: from 2.10 on the form with ``out=``, which had no kernel for MPS before 2.12.
    "aten::mvlgamma_": (
        (
            Span(until=Version(2, 10)),
            (
                "aten::empty.memory_format",
                "aten::arange.start_out",
                "aten::as_strided",
                "aten::add.Tensor",
                "aten::lgamma_",
                "aten::sum.dim_IntList",
                "aten::add_.Tensor",
            ),
        ),
    ),
}


def earlier(target: Target, name: str) -> tuple[str, ...] | None:
    """What the composite's body called in the target's release; None where the installed torch's is as good."""
    spans = EARLIER.get(name, ())
    return next((calls for span, calls in spans if target.torch in span), None)


class _Names:
    """A sink that keeps the names only."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._asked = 0

    def record(self, call: Call) -> None:
        """Take the name; a composite inside of a composite stands for what it calls itself."""
        followed = call.route.has_body and call.inner is not None
        for name in call.inner or () if followed else (call.route.name,):
            self.names.setdefault(name)

    def asked(self, _operator: str) -> int:
        """How often values were asked for, wherever."""
        return self._asked

    def guess(self, operator: str, answer: Any) -> None:
        """Values are unknown by design: the body goes on with the guess."""
        self._asked += 1
        if self._asked > _MOST_GUESSES:
            message = f"{operator} was answered {answer} and asks again"
            raise RuntimeError(message)


def follow(simulator: Simulator, route: Route, args: Any, kwargs: Any) -> tuple[str, ...] | None:
    """The overloads that the composite body of this call dispatches to; None where it cannot be run.

    The body runs on copies without values: following it changes nothing.
    """
    if route.composite is None:
        return ()
    names = _Names()
    sink, simulator.sink = simulator.sink, names
    before, simulator.before_call = simulator.before_call, None
    try:
        with (
            torch.no_grad(),
            torch.random.fork_rng(devices=()),
            dispatch.below_autograd(),
            simulator,
            simulator.context.set(on_mps=True),
        ):
            dispatch.body_of(route.func)(
                route.composite, *unwrapped(route, _valueless(args)), **_valueless(kwargs)
            )
    except RecursionError:
        return None
    except Exception:  # noqa: BLE001 - any composite body of torch, on tensors without values
        return None
    finally:
        simulator.sink, simulator.before_call = sink, before
    names.names.pop(route.name, None)
    return tuple(names.names)


def _valueless(value: Any) -> Any:
    kind = type(value)
    if is_on_mps(value):
        return wrap(value._mps.spec)
    if kind is list or kind is tuple:
        return kind(_valueless(item) for item in value)
    if kind is dict:
        return {name: _valueless(item) for name, item in value.items()}
    if isinstance(value, generator_class):
        return generator_class()
    if isinstance(value, torch.Tensor) and value.dim():
        return wrap(spec_of(value))
    return value
