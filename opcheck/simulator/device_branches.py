"""Branches that PyTorch's C++ takes only on a Mac, as Python functions, each with its releases and its reason.

C++ on this machine either was compiled without them (``#ifdef USE_MPS``) or asks ``tensor.device()``, which says
``cpu`` for the simulated tensor.  A twin is registered at AutogradMPS, so that the dispatcher itself takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.common.versions import Span, Target, Version
from opcheck.simulator import attention, branches, legacy_bodies, recurrent
from opcheck.simulator.branches import composite
from opcheck.simulator.dispatch_context import current
from opcheck.simulator.shapes import NotSimulatedError
from opcheck.tracing.torch_private import dispatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.simulator.dispatch_context import DispatchContext
    from opcheck.simulator.target_queries import TargetQueries

aten = torch.ops.aten

_V2_1, _V2_3, _V2_5, _V2_7, _V2_10 = (Version(2, minor) for minor in (1, 3, 5, 7, 10))


class Twin(NamedTuple):
    """One operator's branch on a Mac."""

    op: str
    torch: Span
    #: takes what asks the target
    make: Callable[[TargetQueries], Callable[..., Any]]
    #: where PyTorch decides, and what
    reason: str


def _always(twin: Callable[..., Any]) -> Callable[[TargetQueries], Callable[..., Any]]:
    return lambda _ask: twin


def _followed(
    op: Any, *, narrows: bool, hides: frozenset[str] = frozenset()
) -> Callable[[TargetQueries], Callable[..., Any]]:
    """The C++ body as it is, with what it does differently on MPS."""

    def make(_ask: TargetQueries) -> Callable[..., Any]:
        def twin(*args: Any, **kwargs: Any) -> Any:
            with current().set(on_mps=True, narrows=narrows, hidden=hides):
                return composite(op, *args, **kwargs)

        return twin

    return make


def _narrowing(op: Any) -> Callable[[TargetQueries], Callable[..., Any]]:
    """Without the float64 temporaries that it makes on other devices."""
    return _followed(op, narrows=True)


#: composites that make their tolerances in float32 on MPS (LinearAlgebra.cpp, get_atol_rtol, since 2.3).
_TOLERANCES = (
    aten.linalg_pinv.default,
    aten.linalg_pinv.atol_rtol_float,
    aten.linalg_pinv.rcond_tensor,
    aten.linalg_matrix_rank.default,
    aten.linalg_matrix_rank.tol_tensor,
    aten.linalg_matrix_rank.atol_rtol_float,
    aten.linalg_matrix_rank.atol_rtol_tensor,
)

#: Sorting.cpp, quantile_compute: on the CPU alone the values of q are checked (the torch 2.9 that may be installed).
_QUANTILES = (
    aten.quantile.default,
    aten.quantile.scalar,
    aten.nanquantile.default,
    aten.nanquantile.scalar,
)
_VALUE_CHECK = frozenset(
    f"aten::{name}"
    for name in ("ge.Scalar", "le.Scalar", "logical_and_", "all", "new_ones", "equal")
)

#: the table: operator, releases, twin, where PyTorch decides.
TWINS: tuple[Twin, ...] = (
    Twin(
        "aten::scaled_dot_product_attention",
        Span(),
        attention.scaled_dot_product_attention,
        "native/transformers/attention.cpp: _scaled_dot_product_attention_math_for_mps, by release",
    ),
    Twin(
        "aten::rms_norm",
        Span(since=_V2_7),
        branches.rms_norm,
        "native/layer_norm.cpp: fused only with a weight and without grad",
    ),
    Twin("aten::lstm.input", Span(), branches.lstm, "native/RNN.cpp: _lstm_mps"),
    Twin(
        "aten::dropout",
        Span(),
        branches.dropout,
        "native/Dropout.cpp: native_dropout on MPS, since 2.15",
    ),
    Twin(
        "aten::one_hot",
        Span(),
        branches.one_hot,
        "native/Onehot.cpp: no value checks on MPS up to 2.11; never what it does for subclasses",
    ),
    Twin(
        "aten::_scaled_dot_product_attention_math",
        Span(until=_V2_5),
        _always(attention.math_before_2_5),
        "native/transformers/attention.cpp: in the inputs' dtype, with a plain softmax",
    ),
    Twin(
        "aten::linalg_eigvals",
        Span(since=_V2_3),
        _always(branches.linalg_eigvals),
        "native/BatchLinearAlgebra.cpp: with eigenvectors for autograd and for subclasses only",
    ),
    Twin(
        "aten::kl_div",
        Span(until=_V2_1),
        _always(branches.kl_div),
        "native/Loss.cpp: log and a product where others take xlogy",
    ),
    Twin(
        "aten::cosine_similarity",
        Span(until=_V2_1),
        _always(legacy_bodies.cosine_similarity),
        "native/Distance.cpp: the norms from squares, before linalg_vector_norm",
    ),
    Twin(
        "aten::take_along_dim",
        Span(until=_V2_10),
        _always(legacy_bodies.take_along_dim),
        "native/TensorAdvancedIndexing.cpp: the indices as they are, before remainder wraps them",
    ),
    Twin(
        "aten::tensordot",
        Span(),
        branches.tensordot,
        "native/Linear.cpp: always permute, reshape, mm, before other devices got a shorter way and since",
    ),
    Twin(
        "aten::tensor_split.tensor_indices_or_sections",
        Span(),
        branches.tensor_split,
        "native/TensorShape.cpp: the indices must be on the CPU",
    ),
    Twin(
        "aten::_batch_norm_impl_index",
        Span(),
        _narrowing(aten._batch_norm_impl_index.default),
        "native/Normalization.cpp: statistics of an empty batch, in the device's accumulate type",
    ),
    *(
        Twin(
            op,
            Span(),
            _always(branches.ctc_loss),
            "native/LossCTC.cpp: lengths are read on the host",
        )
        for op in ("aten::ctc_loss.IntList", "aten::ctc_loss.Tensor")
    ),
    *(
        Twin(
            op.name(),
            Span(since=_V2_3),
            _narrowing(op),
            "native/LinearAlgebra.cpp, get_atol_rtol: float32 tolerances on MPS",
        )
        for op in _TOLERANCES
    ),
    *(
        Twin(
            op.name(),
            Span(),
            _followed(op, narrows=True, hides=_VALUE_CHECK),
            "native/Sorting.cpp: no check of q, and the ranks in the input's dtype (installed 2.15)",
        )
        for op in _QUANTILES
    ),
    *(
        Twin(
            op,
            Span(),
            _always(twin),
            "native/RNN.cpp: the input gates are computed ahead only on the CPU",
        )
        for op, twin in recurrent.TWINS.items()
    ),
)


def branches_of(target: Target, context: DispatchContext) -> dict[str, Callable[..., Any]]:
    """The twins that hold for a target, by operator overload; they ask it what they need to know."""
    return {twin.op: twin.make(context.ask) for twin in TWINS if target.torch in twin.torch}


def _group_norm(*args: Any, **kwargs: Any) -> Any:
    return dispatch.group_norm_in_python(*args, **kwargs)


def _group_norm_backward(*args: Any, **kwargs: Any) -> Any:
    return dispatch.group_norm_backward_in_python(*args, **kwargs)


def _var_mean(*args: Any, **kwargs: Any) -> Any:
    return dispatch.var_mean_in_python(*args, **kwargs)


def _lu_solve(lu: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, **options: Any) -> Any:
    """torch/_refs/linalg/__init__.py of 2.10 to 2.13 registers it for the form with ``out=``."""
    options = {"left": True, "adjoint": False, **options}
    kernel = dispatch.lu_solve_in_python
    if kernel is None:
        message = "this torch does not have the Python kernel of linalg_lu_solve for MPS"
        raise NotSimulatedError(message)
    out = torch.empty_like(b)
    kernel(lu, pivots, b, **options, out=out)
    return out


#: torch/backends/mps/__init__.py, ``_init``: kernels that a Mac registers from Python at ``import torch``.
PYTHON_KERNELS: dict[str, Callable[..., Any]] = {
    "aten::native_group_norm": _group_norm,
    "aten::native_group_norm_backward": _group_norm_backward,
    "aten::var_mean.correction": _var_mean,
    "aten::linalg_lu_solve": _lu_solve,
}
