"""Branches that PyTorch's C++ takes only on a Mac, as Python functions, each with its releases and its reason.

C++ on this machine either was compiled without them (``#ifdef USE_MPS``) or asks ``tensor.device()``, which says
``cpu`` for the simulated tensor.  A twin is registered at AutogradMPS, so that the dispatcher itself takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._C import DispatchKey

from opcheck.simulate import recurrent
from opcheck.simulate.flight import FLIGHT
from opcheck.versions import Span, Target, Version

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_3, _V2_5, _V2_6, _V2_7, _V2_8, _V2_9 = (Version(2, minor) for minor in (3, 5, 6, 7, 8, 9))
_V2_12, _V2_14, _V2_15 = (Version(2, minor) for minor in (12, 14, 15))


class Twin(NamedTuple):
    """One operator's branch on a Mac."""

    op: str
    torch: Span
    make: Callable[[Target], Callable[..., Any]]
    #: where PyTorch decides, and what
    reason: str


def _needs_grad(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _composite(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


# -- attention ----------------------------------------------------------------------------------------------


def _scaled_dot_product_attention(target: Target) -> Callable[..., Tensor]:
    version = target.torch
    takes_gqa = "enable_gqa" in {
        argument.name
        for argument in aten._scaled_dot_product_attention_math_for_mps.default._schema.arguments
    }

    def on_metal(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> bool:
        if version < _V2_5 or _needs_grad(q, k, v):
            return False
        if version >= _V2_12:
            return True
        contiguous = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
        return dropout_p == 0.0 and (
            contiguous or (version >= _V2_6 and target.macos >= Version(15, 0))
        )

    def twin(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002 - the operator's schema
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if version >= _V2_14 and query.dim() == key.dim() == value.dim() == 3:
            # sdp::normalize_unbatched_input: the function calls itself on 4-D tensors.
            out = twin(
                query.unsqueeze(0),
                key.unsqueeze(0),
                value.unsqueeze(0),
                attn_mask,
                dropout_p,
                is_causal,
                scale=scale,
                enable_gqa=enable_gqa,
            )
            return out.squeeze(0)
        mask = _additive(attn_mask, query.dtype)
        if not on_metal(query, key, value, dropout_p):
            gqa = {"enable_gqa": enable_gqa} if enable_gqa else {}
            return aten._scaled_dot_product_attention_math.default(
                query, key, value, mask, dropout_p, is_causal, None, scale=scale, **gqa
            )[0]
        options: dict[str, Any] = {"scale": scale}
        if enable_gqa and version < _V2_12:
            groups = query.size(-3) // key.size(-3)
            key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
        elif enable_gqa and takes_gqa:
            options["enable_gqa"] = True
        return aten._scaled_dot_product_attention_math_for_mps.default(
            query, key, value, mask, dropout_p, is_causal, None, **options
        )[0]

    return twin


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # attention.cpp, convert_boolean_attn_mask: a boolean mask becomes an additive one in front of the branch.
    if mask is None or mask.dtype is not torch.bool:
        return mask
    options = {"dtype": dtype, "device": mask.device}
    low = aten.scalar_tensor.default(float("-inf"), **options)
    zero = aten.scalar_tensor.default(0.0, **options)
    return aten.where.self(mask, zero, low)


# -- normalization ------------------------------------------------------------------------------------------


def _rms_norm(target: Target) -> Callable[..., Tensor]:
    version = target.torch

    def twin(
        x: Tensor,
        normalized_shape: list[int],
        weight: Tensor | None = None,
        eps: float | None = None,
    ) -> Tensor:
        fused = (
            weight is not None
            and x.is_floating_point()
            and weight.is_floating_point()
            and not _needs_grad(x, weight)
        )
        if version >= _V2_9:
            channels_last = x.dim() in (4, 5) and x.is_contiguous(
                memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d
            )
            plain = x.is_contiguous()
            fused = fused and not (channels_last and not plain) and weight.dtype == x.dtype  # type: ignore[union-attr]
        if fused and version >= _V2_8:
            return aten._fused_rms_norm.default(x.contiguous(), normalized_shape, weight, eps)[0]
        if fused:
            # 2.7 calls the Metal kernel without an operator: only the allocation is one.
            return torch.empty_like(x)
        return _rms_norm_composite(x, normalized_shape, weight, eps)

    return twin


def _rms_norm_composite(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float | None
) -> Tensor:
    # layer_norm.cpp, rms_norm_composite: the mean of squares in float32 for float16 and bfloat16.
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    compute = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    if eps is None:
        eps = torch.finfo(compute).eps
    upcast = x.to(compute)
    rrms = aten.rsqrt.default(
        aten.add_.Scalar(aten.mean.dim(aten.pow.Tensor_Scalar(upcast, 2), dims, True), eps)  # noqa: FBT003
    )
    result = aten.mul.Tensor(upcast, rrms).type_as(x)
    return result if weight is None else aten.mul.Tensor(result, weight)


# -- the rest -----------------------------------------------------------------------------------------------


def _lstm(target: Target) -> Callable[..., Any]:
    # 2.1 to 2.4: macOS 13 or a single layer (RNN.cpp); these releases start on 12.3.
    old = Version(2, 1) <= target.torch < _V2_5

    def twin(x: Tensor, hx: list[Tensor], params: list[Tensor], *rest: Any) -> Any:
        if old and target.macos < Version(13, 0) and rest[1] > 1:
            return _composite(aten.lstm.input, x, hx, params, *rest)
        return aten._lstm_mps.default(x, hx, params, *rest)[:3]

    return twin


def _dropout(_target: Target) -> Callable[..., Tensor]:
    floats = (torch.float32, torch.float16, torch.bfloat16)

    def twin(x: Tensor, p: float, train: bool) -> Tensor:  # noqa: FBT001 - the operator's schema
        # Dropout.cpp, is_fused_kernel_acceptable, whose MPS case is new in 2.15.
        if train and 0 < p < 1 and x.numel() > 0 and x.dtype in floats:
            return aten.native_dropout.default(x, p, train)[0]
        return _composite(aten.dropout.default, x, p, train)

    return twin


def _safe_softmax(_target: Target) -> Callable[..., Tensor]:
    def twin(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        # Before 2.5 attention.cpp called softmax where it calls _safe_softmax now.
        return aten.softmax.int(x, dim, dtype)

    return twin


def _one_hot(_target: Target) -> Callable[..., Tensor]:
    def twin(x: Tensor, num_classes: int = -1) -> Tensor:
        # Onehot.cpp: the checks that read values are skipped for MPS.
        if num_classes == -1:
            num_classes = int(aten.max.default(x).item()) + 1
        shape = [*x.shape, num_classes]
        result = torch.zeros(shape, dtype=x.dtype, device=x.device)
        return aten.scatter_.value(result, -1, x.unsqueeze(-1), 1)

    return twin


def _tensordot(_target: Target) -> Callable[..., Tensor]:
    def twin(a: Tensor, b: Tensor, dims_a: list[int], dims_b: list[int]) -> Tensor:
        # native/Linear.cpp: elsewhere a full contraction becomes a dot product; on MPS it is always mm.
        dims_a = [d % a.dim() for d in dims_a] if a.dim() else list(dims_a)
        dims_b = [d % b.dim() for d in dims_b] if b.dim() else list(dims_b)
        sums = [(i, j) for i, j in zip(dims_a, dims_b, strict=True)]
        for i, j in sums:
            if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
                return _composite(aten.tensordot.default, a, b, dims_a, dims_b)
            if a.shape[i] != b.shape[j]:
                a, b = (
                    (a, b.sum(j, keepdim=True)) if a.shape[i] == 1 else (a.sum(i, keepdim=True), b)
                )
        free_a = [d for d in range(a.dim()) if d not in dims_a]
        free_b = [d for d in range(b.dim()) if d not in dims_b]
        shared = 1
        for d in dims_a:
            shared *= a.shape[d]
        left = a.permute([*free_a, *dims_a]).reshape(
            [-1 if free_a and a.numel() else _size(a, free_a), shared]
        )
        right = b.permute([*dims_b, *free_b]).reshape(
            [shared, -1 if free_b and b.numel() else _size(b, free_b)]
        )
        shape = [a.shape[d] for d in free_a] + [b.shape[d] for d in free_b]
        return aten.mm.default(left, right).reshape(shape)

    return twin


def _size(tensor: Tensor, dims: list[int]) -> int:
    size = 1
    for d in dims:
        size *= tensor.shape[d]
    return size


def _tensor_split(_target: Target) -> Callable[..., Any]:
    def twin(x: Tensor, indices: Tensor, dim: int = 0) -> Any:
        if indices.device.type != "cpu":
            FLIGHT.refuse(
                aten.tensor_split.tensor_indices_or_sections,
                (x, indices, dim),
                "device_mismatch",
                "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on mps:0",
            )
            # The audit goes on as if they were on the CPU.
        if indices.dim() == 0:
            return x.tensor_split(int(indices.item()), dim)
        return x.tensor_split([int(i) for i in indices.tolist()], dim)

    return twin


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,  # noqa: FBT001, FBT002 - the operator's schema
) -> Tensor:
    # LossCTC.cpp: a subclass takes another way, with lengths that stay tensors, as no plain tensor does.
    lengths = [
        value.cpu().reshape(-1).tolist() if isinstance(value, torch.Tensor) else list(value)
        for value in (input_lengths, target_lengths)
    ]
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
    targets = targets.to(device=log_probs.device, dtype=torch.int64)
    result = aten._ctc_loss.default(log_probs, targets, *lengths, blank, zero_infinity)[0]
    if zero_infinity:
        nothing = torch.zeros((), dtype=result.dtype, device=result.device)
        result = torch.where(result == float("inf"), nothing, result)
    if reduction == 1:
        sizes = torch.tensor(lengths[1], dtype=result.dtype).to(result.device)
        return (result / sizes.clamp_min_(1)).mean()
    if reduction == 2:
        return result.sum()
    return result if batched else result.squeeze(0)


def _always(twin: Callable[..., Any]) -> Callable[[Target], Callable[..., Any]]:
    return lambda _target: twin


def _narrowing(op: Any) -> Callable[[Target], Callable[..., Any]]:
    """The C++ body as it is, but for the float64 temporaries that it makes on other devices."""

    def make(_target: Target) -> Callable[..., Any]:
        def twin(*args: Any, **kwargs: Any) -> Any:
            with FLIGHT.set(on_mps=True, narrows=True):
                return _composite(op, *args, **kwargs)

        return twin

    return make


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

#: the table: operator, releases, twin, where PyTorch decides.
TWINS: tuple[Twin, ...] = (
    Twin(
        "aten::scaled_dot_product_attention",
        Span(),
        _scaled_dot_product_attention,
        "native/transformers/attention.cpp: _scaled_dot_product_attention_math_for_mps, by release",
    ),
    Twin(
        "aten::rms_norm",
        Span(since=_V2_7),
        _rms_norm,
        "native/layer_norm.cpp: fused only with a weight and without grad",
    ),
    Twin("aten::lstm.input", Span(), _lstm, "native/RNN.cpp: _lstm_mps"),
    Twin(
        "aten::dropout", Span(since=_V2_15), _dropout, "native/Dropout.cpp: native_dropout on MPS"
    ),
    Twin(
        "aten::one_hot", Span(until=_V2_12), _one_hot, "native/Onehot.cpp: no value checks on MPS"
    ),
    Twin(
        "aten::_safe_softmax",
        Span(until=_V2_5),
        _safe_softmax,
        "native/transformers/attention.cpp: plain softmax before the operator existed",
    ),
    Twin(
        "aten::tensordot",
        Span(since=_V2_8),
        _tensordot,
        "native/Linear.cpp: always permute, reshape, mm",
    ),
    Twin(
        "aten::tensor_split.tensor_indices_or_sections",
        Span(),
        _tensor_split,
        "native/TensorShape.cpp: the indices must be on the CPU",
    ),
    Twin(
        "aten::_batch_norm_impl_index",
        Span(),
        _narrowing(aten._batch_norm_impl_index.default),
        "native/Normalization.cpp: statistics of an empty batch, in the device's accumulate type",
    ),
    *(
        Twin(op, Span(), _always(_ctc_loss), "native/LossCTC.cpp: lengths are read on the host")
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
            op,
            Span(),
            _always(twin),
            "native/RNN.cpp: the input gates are computed ahead only on the CPU",
        )
        for op, twin in recurrent.TWINS.items()
    ),
)


def twins_of(target: Target) -> dict[str, Callable[..., Any]]:
    """The twins that hold for a target, by operator overload."""
    return {twin.op: twin.make(target) for twin in TWINS if target.torch in twin.torch}


def _group_norm(*args: Any, **kwargs: Any) -> Any:
    return torch._refs.native_group_norm(*args, **kwargs)


def _group_norm_backward(*args: Any, **kwargs: Any) -> Any:
    return torch._decomp.decompositions.native_group_norm_backward(*args, **kwargs)


def _var_mean(*args: Any, **kwargs: Any) -> Any:
    return torch._refs.var_mean(*args, **kwargs)


#: torch/backends/mps/__init__.py, ``_init``: kernels that a Mac registers from Python at ``import torch``.
PYTHON_KERNELS: dict[str, Callable[..., Any]] = {
    "aten::native_group_norm": _group_norm,
    "aten::native_group_norm_backward": _group_norm_backward,
    "aten::var_mean.correction": _var_mean,
}
