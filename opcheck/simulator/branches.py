"""The smaller branches of PyTorch's C++ that only a Mac takes, as Python functions: twins.py says where each is."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator import recurrent
from opcheck.simulator.attention import needs_grad
from opcheck.simulator.dispatch_context import current
from opcheck.tracing.torch_private.dispatch import DispatchKey, body_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.simulator.target_queries import TargetQueries

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_5, _V2_8, _V2_9, _V2_12, _V2_15 = (Version(2, minor) for minor in (5, 8, 9, 12, 15))


def composite(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The C++ body of a composite."""
    return body_of(op)(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


# -- normalization ------------------------------------------------------------------------------------------


def _fused_rms_norm(target: Target, plain: bool) -> str:
    """With a weight and without grad: the operator, or else the kernel without an operator, or neither.

    Args:
        target: the release.
        plain: the weight has the input's dtype, and the input is not channels-last alone.
    """
    if target.torch >= _V2_9 and not plain:
        return "composite"
    # 2.7 calls the Metal kernel without an operator: only the allocation is one.
    return "operator" if target.torch >= _V2_8 else "allocation"


def rms_norm(ask: TargetQueries) -> Callable[..., Tensor]:
    """Fused with a weight and without grad, by release."""

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
            and not needs_grad(x, weight)
        )
        channels_last = x.dim() in (4, 5) and x.is_contiguous(
            memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        )
        plain = weight is not None and weight.dtype == x.dtype
        plain = plain and not (channels_last and not x.is_contiguous())
        way = ask(_fused_rms_norm, plain) if fused else "composite"
        if way == "operator":
            return aten._fused_rms_norm.default(x.contiguous(), normalized_shape, weight, eps)[0]
        if way == "allocation":
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
        aten.add_.Scalar(aten.mean.dim(aten.pow.Tensor_Scalar(upcast, 2), dims, True), eps)
    )
    result = aten.mul.Tensor(upcast, rrms).type_as(x)
    return result if weight is None else aten.mul.Tensor(result, weight)


_LSTM_ON_MACOS_12 = (
    "Native multi-layer LSTM support in MPS available only on MacOS 13 onwards. "
    "Falling back to LSTMCell iteration. This may have performance implications."
)


def _iterates_cells(target: Target) -> bool:
    # 2.1 to 2.4: macOS 13 or a single layer (RNN.cpp); these releases start on 12.3.
    return Version(2, 1) <= target.torch < _V2_5 and target.macos < Version(13, 0)


def lstm(ask: TargetQueries) -> Callable[..., Any]:
    """One kernel."""

    def twin(x: Tensor, hx: list[Tensor], params: list[Tensor], *rest: Any) -> Any:
        if rest[1] > 1 and ask(_iterates_cells):
            warnings.warn(_LSTM_ON_MACOS_12, stacklevel=2)
            return recurrent.lstm_cells(x, hx, params, *rest)
        return aten._lstm_mps.default(x, hx, params, *rest)[:3]

    return twin


def _is_dense(x: Tensor) -> bool:
    # TensorImpl::is_non_overlapping_and_dense
    step = 1
    for stride, size in sorted((t, n) for t, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride != step:
            return False
        step *= size
    return True


def _fuses_dropout(target: Target) -> bool:
    # Dropout.cpp, is_fused_kernel_acceptable, whose MPS case is new in 2.15.
    return target.torch >= _V2_15


def dropout(ask: TargetQueries) -> Callable[..., Tensor]:
    """One kernel where it fits."""
    floats = (torch.float32, torch.float16, torch.bfloat16)

    def twin(x: Tensor, p: float, train: bool) -> Tensor:
        if (
            train
            and 0 < p < 1
            and x.numel() > 0
            and x.dtype in floats
            and _is_dense(x)
            and ask(_fuses_dropout)
        ):
            return aten.native_dropout.default(x, p, train)[0]
        return composite(aten.dropout.default, x, p, train)

    return twin


def _reads_range(target: Target) -> bool:
    # Onehot.cpp: up to 2.11 the checks that read values are skipped for MPS; later they are made at once.
    return target.torch >= _V2_12


def one_hot(ask: TargetQueries) -> Callable[..., Tensor]:
    """As for a plain tensor: C++ takes another way for one with a Python key."""

    def twin(x: Tensor, num_classes: int = -1) -> Tensor:
        if x.numel() and ask(_reads_range):
            high = aten.aminmax.default(x)[1]
            num_classes = int(high.item()) + 1 if num_classes == -1 else num_classes
        elif num_classes == -1:
            num_classes = int(aten.max.default(x).item()) + 1
        shape = [*x.shape, num_classes]
        result = torch.zeros(shape, dtype=x.dtype, device=x.device)
        return aten.scatter_.value(result, -1, x.unsqueeze(-1), 1)

    return twin


def tensordot(_ask: TargetQueries) -> Callable[..., Tensor]:
    """Always as a matrix product."""

    def twin(a: Tensor, b: Tensor, dims_a: list[int], dims_b: list[int]) -> Tensor:
        # native/Linear.cpp: elsewhere a full contraction becomes a dot product; on MPS it is always mm.
        dims_a = [d % a.dim() for d in dims_a] if a.dim() else list(dims_a)
        dims_b = [d % b.dim() for d in dims_b] if b.dim() else list(dims_b)
        sums = [(i, j) for i, j in zip(dims_a, dims_b, strict=True)]
        for i, j in sums:
            if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
                return composite(aten.tensordot.default, a, b, dims_a, dims_b)
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


def tensor_split(_ask: TargetQueries) -> Callable[..., Any]:
    """Refuses indices that are not on the CPU."""

    def twin(x: Tensor, indices: Tensor, dim: int = 0) -> Any:
        if indices.device.type != "cpu":
            current().refuse(
                aten.tensor_split.tensor_indices_or_sections,
                (x, indices, dim),
                "indices_on_mps",
                "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on mps:0",
            )
            # The audit goes on as if they were on the CPU.
        if indices.dim() == 0:
            return x.tensor_split(int(indices.item()), dim)
        return x.tensor_split([int(i) for i in indices.tolist()], dim)

    return twin


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """With lengths that are read on the host."""
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


def linalg_eigvals(x: Tensor) -> Tensor:
    """Without the eigenvectors, where autograd does not need them."""
    if needs_grad(x):
        return aten.linalg_eig.default(x)[0]
    return aten._linalg_eigvals.default(x)


def kl_div(
    x: Tensor,
    target: Tensor,
    reduction: int = 1,
    *,
    log_target: bool = False,
) -> Tensor:
    """Loss.cpp of 1.13 and 2.0, which had no xlogy on MPS."""
    loss = torch.exp(target) * (target - x) if log_target else target * (torch.log(target) - x)
    if reduction == 0:
        return loss
    return loss.mean() if reduction == 1 else loss.sum()
