"""The branches that only a Mac takes, each with a program that meets it and the operators that a release calls there.

The lists come from PyTorch's sources and from the code of its macOS wheels (opcheck/simulator/dispatch/operators says where), not
from a run of the simulation: a list from one release holds until the next one that is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

Program = Callable[[], Any]


class Case(NamedTuple):
    """One branch."""

    program: Program
    #: release -> operators from there on
    calls: dict[str, str]
    grad: bool = False


def on_mps(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """Made on the device: one call, ``empty_strided``-free and without values."""
    return torch.empty(*shape, dtype=dtype, device="mps").requires_grad_(grad)


def _attention(*, dtype: torch.dtype = torch.float32, grad: bool = False, **options: Any) -> Program:
    def program() -> None:
        q, k, v = (on_mps(1, 2, 3, 4, dtype=dtype, grad=grad) for _ in range(3))
        F.scaled_dot_product_attention(q, k, v, **options)

    return program


def _gqa() -> None:
    q, k = on_mps(1, 4, 3, 8), on_mps(1, 2, 3, 8)
    F.scaled_dot_product_attention(q, k, k, enable_gqa=True)


def _strided_attention() -> None:
    x = on_mps(1, 3, 2, 4).transpose(1, 2)
    F.scaled_dot_product_attention(x, x, x)


def _unbatched_attention() -> None:
    x = on_mps(2, 3, 4)
    F.scaled_dot_product_attention(x, x, x)


def _masked_attention() -> None:
    x = on_mps(1, 2, 3, 4)
    F.scaled_dot_product_attention(x, x, x, on_mps(3, 3, dtype=torch.bool))


def _rms(*, grad: bool = False, weight: bool = True, half: bool = False) -> Program:
    def program() -> None:
        x = on_mps(2, 8, dtype=torch.float16 if half else torch.float32)
        F.rms_norm(x, (8,), on_mps(8, grad=grad) if weight else None)

    return program


def _group_norm(*, backward: bool = False) -> Program:
    def program() -> None:
        y = F.group_norm(on_mps(1, 4, 3, 3, grad=backward), 2)
        if backward:
            y.backward(on_mps(1, 4, 3, 3))

    return program


def _dropout(*, backward: bool = False) -> Program:
    def program() -> None:
        y = F.dropout(on_mps(4, 4, grad=backward), 0.5, training=True)
        if backward:
            y.backward(on_mps(4, 4))

    return program


def _lstm(layers: int = 1) -> Program:
    def program() -> None:
        with torch.device("meta"):
            lstm = torch.nn.LSTM(3, 4, layers)
        weights = [on_mps(*weight.shape) for weight in lstm._flat_weights]  # type: ignore[union-attr]
        state = (on_mps(layers, 1, 4), on_mps(layers, 1, 4))
        torch.lstm(on_mps(2, 1, 3), state, weights, True, layers, 0.0, False, False, False)

    return program


def _ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, device="mps")


def _adamw(**options: Any) -> Program:
    def program() -> None:
        weight = torch.nn.Parameter(on_mps(3))
        weight.grad = on_mps(3)
        torch.optim.AdamW([weight], **options).step()

    return program


def _clip() -> None:
    weights = [torch.nn.Parameter(on_mps(3)) for _ in range(2)]
    for weight in weights:
        weight.grad = on_mps(3)
    torch.nn.utils.clip_grad_norm_(weights, 1.0)


def _module(module: torch.nn.Module, *shape: int) -> None:
    for child in module.modules():
        for name, weight in child._parameters.items():
            if weight is not None:
                child._parameters[name] = torch.nn.Parameter(on_mps(*weight.shape))
    module.eval()(on_mps(*shape))


def _gru() -> None:
    with torch.device("meta"):
        gru = torch.nn.GRU(3, 4)
    _module(gru, 2, 1, 3)


_METAL = "_scaled_dot_product_attention_math_for_mps"
#: what the math of attention calls: the two factors, the product, softmax, the second product
_REPEAT = "unsqueeze expand clone view"
_BMM = "expand view expand view bmm _unsafe_view"
_OLD_MATH = f"mul.Scalar transpose.int mul.Scalar {_BMM} _softmax {_BMM}"
_NEW_MATH = f"mul.Scalar transpose.int mul.Scalar {_BMM} _safe_softmax {_BMM}"
#: torch/_refs, native_group_norm, and torch/_decomp, native_group_norm_backward
_NORM = "add.Tensor rsqrt sub.Tensor mul.Tensor view squeeze.dims squeeze.dims"
_VAR_MEAN = "var.correction unsqueeze unsqueeze expand sum.dim_IntList unsqueeze unsqueeze expand div.Tensor"
_NORM_BACKWARD = (
    "mul.Tensor view sum.dim_IntList view sum.dim_IntList view sum.dim_IntList view sum.dim_IntList "
    "unsqueeze ones mul.Tensor mul.Tensor sub.Tensor mul.Tensor mul.Tensor mul.Tensor mul.Tensor neg "
    "mul.Tensor mul.Tensor mul.Tensor sub.Tensor unsqueeze unsqueeze unsqueeze unsqueeze unsqueeze view "
    "mul.Tensor view mul.Tensor add.Tensor add.Tensor view"
)
_RMS = "pow.Tensor_Scalar mean.dim add_.Scalar rsqrt mul.Tensor"
_MASK = "empty_like bernoulli_.float div_.Scalar mul.Tensor"
#: one step of torch.nn.GRU: two linears, their thirds, the gates
_GRU_STEP = (
    "linear unsafe_split.Tensor linear unsafe_split.Tensor add_.Tensor sigmoid_ add_.Tensor sigmoid_ "
    "mul_.Tensor add.Tensor tanh_ sub.Tensor mul_.Tensor add_.Tensor"
)

CASES: dict[str, Case] = {
    "attention": Case(_attention(), {"1.13": _OLD_MATH, "2.5": _METAL}),
    "attention, dropout": Case(
        _attention(dropout_p=0.5), {"1.13": f"{_OLD_MATH} {_MASK}", "2.5": f"{_NEW_MATH} {_MASK}", "2.12": _METAL}
    ),
    "attention, training": Case(_attention(grad=True), {"1.13": _OLD_MATH, "2.5": _NEW_MATH}, grad=True),
    "attention, training, float16": Case(
        _attention(grad=True, dtype=torch.float16),
        {"1.13": _OLD_MATH, "2.5": f"_to_copy _to_copy _to_copy {_NEW_MATH} _to_copy _to_copy"},
        grad=True,
    ),
    "attention, strides": Case(
        _strided_attention,
        {"1.13": f"transpose.int {_OLD_MATH}", "2.5": f"transpose.int {_NEW_MATH}", "2.6": f"transpose.int {_METAL}"},
    ),
    "attention, mask": Case(_masked_attention, {"2.5": f"scalar_tensor scalar_tensor where.self {_METAL}"}),
    "attention, groups": Case(_gqa, {"2.7": f"{_REPEAT} {_REPEAT} {_METAL}", "2.12": _METAL}),
    "attention, unbatched": Case(
        _unbatched_attention, {"2.5": _METAL, "2.14": f"unsqueeze unsqueeze unsqueeze {_METAL} squeeze.dim"}
    ),
    "rms_norm": Case(_rms(), {"1.13": f"{_RMS} mul.Tensor", "2.7": "empty_like", "2.8": "_fused_rms_norm"}),
    "rms_norm, training": Case(_rms(grad=True), {"1.13": f"{_RMS} mul.Tensor"}, grad=True),
    "rms_norm, no weight": Case(_rms(weight=False), {"1.13": _RMS}),
    "rms_norm, two dtypes": Case(
        _rms(half=True), {"2.8": "_fused_rms_norm", "2.9": f"_to_copy {_RMS} _to_copy mul.Tensor"}
    ),
    "group_norm": Case(
        _group_norm(),
        {
            "1.13": "native_group_norm",
            "2.0": f"view {_VAR_MEAN} {_NORM}",
            "2.3": f"view var_mean.correction {_NORM}",
            "2.13": "native_group_norm",
        },
    ),
    "group_norm, backward": Case(
        _group_norm(backward=True),
        {
            "1.13": "native_group_norm native_group_norm_backward",
            "2.0": f"view {_VAR_MEAN} {_NORM} {_NORM_BACKWARD}",
            "2.3": f"view var_mean.correction {_NORM} {_NORM_BACKWARD}",
            "2.13": "native_group_norm native_group_norm_backward",
        },
        grad=True,
    ),
    "dropout": Case(_dropout(), {"1.13": _MASK, "2.15": "native_dropout"}),
    "dropout, backward": Case(
        _dropout(backward=True),
        {"1.13": f"{_MASK} mul.Tensor", "2.15": "native_dropout native_dropout_backward"},
        grad=True,
    ),
    "lstm": Case(_lstm(), {"1.13": "_lstm_mps"}),
    "lstm, two layers": Case(_lstm(2), {"1.13": "_lstm_mps"}),
    "gru": Case(_gru, {"1.13": f"zeros unbind.int unbind.int {_GRU_STEP} {_GRU_STEP} stack stack"}),
    "one_hot": Case(
        lambda: F.one_hot(_ints(0, 3), 4),
        {"1.13": "_to_copy zeros unsqueeze scatter_.value", "2.12": "_to_copy aminmax zeros unsqueeze scatter_.value"},
    ),
    "kl_div": Case(
        lambda: F.kl_div(on_mps(3), on_mps(3), reduction="sum"),
        {"1.13": "log sub.Tensor mul.Tensor sum", "2.1": "xlogy.Tensor mul.Tensor sub.Tensor sum"},
    ),
    "inner": Case(lambda: torch.inner(on_mps(3), on_mps(3)), {"1.13": "permute permute view view mm view"}),
    "tensordot": Case(
        lambda: torch.tensordot(on_mps(2, 3), on_mps(2, 3), 2), {"1.13": "permute permute view view mm view"}
    ),
    "linear": Case(lambda: F.linear(on_mps(2, 3), on_mps(4, 3)), {"1.13": "linear"}),
    "max_pool2d": Case(
        lambda: F.max_pool2d(on_mps(1, 1, 4, 4), 2),
        # 1.13 calls _mps_max_pool2d, which no later torch has (opcheck/simulator/differences.py).
        {"1.13": "max_pool2d_with_indices", "2.0": "max_pool2d"},
    ),
    "AdamW": Case(
        _adamw(),
        # One parameter after the other, and no _foreach_ operator.  ``step`` is a tensor of the CPU.
        {
            "1.13": "zeros_like zeros_like mul_.Tensor mul_.Tensor add_.Tensor mul_.Tensor addcmul_ sqrt "
            "div.Tensor add_.Tensor addcdiv_",
            "2.1": "zeros_like zeros_like mul_.Tensor lerp_.Scalar mul_.Tensor addcmul_ sqrt div.Tensor "
            "add_.Tensor addcdiv_",
        },
    ),
    "AdamW, fused": Case(_adamw(fused=True), {"2.5": "zeros zeros_like zeros_like _foreach_add_.Scalar _fused_adamw_"}),
    "clip_grad_norm_": Case(
        _clip,
        {
            # torch.norm, whose Python leaves MPS out of what it sends to linalg_vector_norm (torch/functional.py).
            "1.13": "norm.ScalarOpt_dim norm.ScalarOpt_dim stack norm.ScalarOpt_dim add.Tensor reciprocal "
            "mul.Tensor clamp mul_.Tensor mul_.Tensor",
            "2.1": "linalg_vector_norm linalg_vector_norm stack linalg_vector_norm add.Tensor reciprocal "
            "mul.Tensor clamp mul_.Tensor mul_.Tensor",
        },
    ),
}
