"""The conditions that came from public reports: the smallest call that meets each, and one beside it that does not."""

from __future__ import annotations

from typing import Any

import pytest

from opcheck.data.registrations import load
from opcheck.model.records import TensorSpec
from tests.data.test_coverage_advisories import ADVISORIES, FLAT, TURNED, tensor

HALF, WHOLE, NOTHING = tensor(4, dtype="float16"), tensor(4), tensor(0)
LAST, LAST_VIEW = (tensor(2, 8, 4, 4, stride=(128, 1, 32, 8), offset=n) for n in (0, 8))
PLANE, CUBE, COLUMN = tensor(2, 8, 4, 4), tensor(2, 2, 2, 2, 2), tensor(4, 1)
INTEGERS = tensor(4, dtype="int64")
NUMBER, ELEMENT = tensor(device="cpu"), tensor(device="cpu", offset=1)
EXPANDED = tensor(2, 8, 2, 2, stride=(0, 0, 0, 0))
HEADS, MASK = tensor(1, 2, 4, 64), tensor(1, 1, 4, 1024)
STRIDED = {"self": (TURNED, FLAT)}
COLUMNS, TURNED_VIEW = tensor(4, 2, stride=(6, 1), offset=2), tensor(4, 6, stride=(1, 4), offset=24)
EMPTY = {"self": (NOTHING, WHOLE)}
VOLUMES = {
    "input": (
        tensor(64, 51, 150, 10, 16, stride=(1224000, 1, 8160, 816, 51)),
        tensor(64, 51, 150, 10, 16, stride=(1224000, 1, 8160, 51, 510)),
    )
}
#: Lost where the result has the layout of a transposed or channels_last tensor.
STRIDED_RESULTS = (
    "activations-strided",
    "activations-strided-macos-14",
    "bce-strided",
    "bce-strided-macos-14",
    "gelu-strided",
    "glu-strided",
    "glu-strided-macos-14",
    "hardsigmoid-strided",
    "hardsigmoid-strided-macos-14",
    "isposinf-strided-macos-14",
    "leaky-relu-strided",
    "lerp-tensor-strided",
    "lerp-tensor-strided-macos-14",
    "logit-backward-strided",
    "logit-backward-strided-macos-14",
    "matmul-strided-out",
    "nan-to-num-strided",
    "nan-to-num-strided-macos-14",
    "relu-backward-permuted",
    "relu-backward-strided",
    "relu-backward-strided-macos-14",
    "sigmoid-backward-permuted",
    "sigmoid-backward-strided",
    "sigmoid-backward-strided-macos-14",
    "silu-backward-permuted",
    "silu-backward-strided",
    "silu-backward-strided-macos-14",
    "softplus-backward-strided",
    "softplus-backward-strided-macos-14",
    "softshrink-strided",
    "softshrink-strided-macos-14",
    "tanh-backward-permuted",
    "tanh-backward-strided",
    "tanh-backward-strided-macos-14",
    "threshold-strided",
    "threshold-strided-macos-14",
    "unary-strided-1-13",
    "upsample-channels-last-1-13",
)
#: Lost where the kernel makes its result in the memory format of self.
CHANNELS_LAST = tuple(
    f"{name}{system}"
    for name in (
        "hardswish-backward-channels-last",
        "leaky-relu-backward-channels-last",
        "mish-backward-strided",
        "prelu-channels-last",
    )
    for system in ("", "-macos-14")
)

#: By name: each argument with the value that meets the condition and the one that does not; a single one is for both.
CASES: dict[str, dict[str, Any]] = {
    "copy-to-cpu-same-gaps": {
        "self": (tensor(10, stride=(2,), device="cpu"), tensor(10, device="cpu")),
        "src": (tensor(10, stride=(2,)), tensor(10)),
    },
    "conv-backward-strided-gradient": {"grad_output": (LAST, PLANE)},
    "conv-backward-strided-gradient-2-5": {"grad_output": (LAST, PLANE)},
    "index-reduce-nan": {"reduce": ("amax", "mean")},
    "scatter-reduce-nan-hangs": {"reduce": ("prod", "sum")},
    "loss-mixed-dtypes-aborts": {"self": WHOLE, "target": (HALF, WHOLE)},
    "col2im-blocks": {
        "self": (tensor(1, 6, 10), tensor(1, 6, 9)),
        "output_size": [4, 5],
        "kernel_size": (2, 3),
        "dilation": [1, 1],
        "padding": [0, 0],
        "stride": [1, 1],
    },
    "histogram-many-bins-aborts": {"bins": (8192, 8180)},
    "histogram-many-edges-aborts": {"bins": (tensor(8193), tensor(8181))},
    "upsample-nearest-exact-boundary": {
        "self": (tensor(1, 1, 20), tensor(1, 1, 20)),
        "result": (tensor(1, 1, 11), tensor(1, 1, 8)),
    },
    "sdpa-fully-masked-row": {"attn_mask": (tensor(4, 4, dtype="bool"), None)},
    "sdpa-one-pass-fully-masked-row": {
        "attn_mask": (tensor(4, 4, dtype="bool"), FLAT),
        "is_causal": False,
        "query": HEADS,
        "key": HEADS,
        "value": HEADS,
    },
    "sdpa-two-passes-low-mask": {
        "attn_mask": MASK,
        "is_causal": False,
        "query": HEADS,
        "key": (tensor(1, 2, 1024, 64), tensor(1, 2, 1023, 64)),
        "value": HEADS,
    },
    "sdpa-blocks-lowest-mask": {"attn_mask": MASK, "query": (tensor(1, 2, 9, 64), tensor(1, 2, 8, 64)), "value": HEADS},
    "int8pack-mm-lacks-barriers": {"self": (tensor(12, 64), tensor(11, 64))},
    "mm-half-sums-old-macos": {"self": (tensor(2, 32769), tensor(2, 32768)), "mat2": COLUMN},
    "addmm-equal-shapes": {"mat1": (tensor(4, 4), tensor(2, 4)), "mat2": tensor(4, 4)},
    "addmm-half-sums-old-macos": {"mat1": (tensor(32769, 2), tensor(32768, 2)), "mat2": COLUMN},
    "mm-half-sums-padded-rows": {
        "self": (tensor(4, 8, stride=(9, 1)), tensor(4, 8, stride=(12, 1))),
        "mat2": tensor(8, 4, stride=(1, 8)),
    },
    "sdpa-grouped-query-aborts": {"query": (tensor(1, 8, 4, 16), tensor(1, 2, 4, 16)), "key": tensor(1, 2, 4, 16)},
    "layer-norm-mixed-dtypes": {"input": (HALF, WHOLE), "weight": WHOLE},
    "layer-norm-mixed-dtypes-aborts": {"input": (HALF, WHOLE), "weight": HALF},
    "all-any-dim-empty": {"self": (tensor(0, 3), tensor(2, 3)), "result": tensor(3)},
    "mean-empty": EMPTY,
    "gather-one-long-dimension-aborts": {"self": (tensor(3, 1), tensor(3, 2)), "index": tensor(3, 1, dtype="int64")},
    "nansum-empty": EMPTY,
    "sum-prod-empty": EMPTY,
    "vector-norm-infinity-nan": {"ord": (float("inf"), 2.0)},
    "norm-infinity-nan": {"p": (float("-inf"), None)},
    "norm-zero-counts-zeros": {"p": (0, 2)},
    "unary-view-in-place-1-13": {"result": (FLAT, TURNED)},
    "variance-negative-dim": {"dim": ((-2,), (-1,))},
    "constant-pad-rank-5": {
        "self": tensor(1, 1, 4, 256, 256),
        "pad": (0, 0, 0, 0, 2, 0),
        "result": (tensor(1, 1, 6, 256, 256), tensor(1, 1, 6, 256, 255)),
    },
    "pad3d-large-planes": {
        "self": tensor(1, 1, 4, 254, 254),
        "result": (tensor(1, 1, 6, 256, 256), tensor(1, 1, 6, 255, 256)),
    },
    "constant-pad-vector-65536": {
        "self": tensor(65536, dtype="int64"),
        "result": (tensor(65537, dtype="int64"), tensor(65536, dtype="int64")),
    },
    "zero-slice": {"self": (tensor(2, offset=1), tensor(2))},
    "fill-zero-slice": {"self": tensor(2, offset=1), "value": (0, 1)},
    "zero-4-gib": {"self": (tensor(2**30 + 1), tensor(2**30))},
    "fill-4-gib": {"self": (tensor(2**32 + 1, dtype="bool"), tensor(2**32, dtype="bool"))},
    "copy-number-from-the-cpu": {"self": WHOLE, "src": (NUMBER, WHOLE)},
    "copy-from-the-cpu-into-strided": {"self": (TURNED, FLAT), "src": tensor(4, 6, device="cpu")},
    "multinomial-zero-probability": {"num_samples": (1, 2), "replacement": True},
    "multinomial-many-categories-aborts": {"self": (tensor(16385), tensor(16384)), "replacement": True},
    "solve-broadcast": {"A": tensor(2, 3, 3), "B": (tensor(3, 1), tensor(2, 3))},
    "solve-pivots": {"A": (tensor(3, 4, 4), tensor(0, 4, 4))},
    "batched-product-empty-nan": {"batch1": tensor(1, 2, 0), "beta": (0, 1), "result": tensor(1, 2, 2)},
    "addbmm-no-batches": {"self": tensor(2, 2), "batch1": (tensor(0, 2, 3), tensor(1, 2, 3)), "beta": 1},
    "upsample-linear1d-align-corners": {"align_corners": (True, False)},
    "batch-norm-1d-gradient": {"input": (tensor(4, 3, 5), PLANE), "train": True},
    "triangle-in-place-strided": STRIDED,
    "leaky-relu-mish-strided": STRIDED,
    "activation-gradient-expanded": {"grad_output": (tensor(4, stride=(0,)), WHOLE)},
    "bitwise-in-place-strided": STRIDED,
    "bitwise-not-in-place-strided": STRIDED,
    "inverse-1025-rows-aborts": {"A": (tensor(1025, 1025), tensor(1024, 1024))},
    "bitwise-strided-out": {"out": (TURNED, FLAT)},
    "linear-huge-strides-aborts": {
        "input": (tensor(32769, 1, 256, stride=(256, 8388864, 1)), tensor(32768, 1, 256, stride=(256, 8388608, 1)))
    },
    "linear-backward-one-dimensional-weight-aborts": {"weight": (tensor(6), FLAT)},
    "linear-backward-one-output": {
        "self": tensor(3840, 33),
        "weight": tensor(1, 33),
        "grad_output": (tensor(3840, 1, stride=(0, 0)), tensor(3840, 1)),
    },
    "grid-sampler-2d-channels-last": {"input": (LAST, PLANE)},
    "layer-norm-partly-frozen-aborts": {"output_mask": ((True, False, False), (True, True, True))},
    "addmm-zero-beta-nan": {"beta": (0, 1)},
    "gelu-tanh-ignored": {"approximate": ("tanh", "none")},
    "eye-bool-macos-12": {"result": (tensor(3, 3, dtype="bool"), FLAT)},
    "linear-rank-5-transposed-aborts": {"input": (tensor(2, 2, 2, 2, 2, stride=(16, 1, 4, 2, 8)), CUBE)},
    "sdpa-nan-dropped": {
        "query": (tensor(1, 1, 8, 64), tensor(1, 1, 9, 64)),
        "value": (tensor(1, 1, 16, 64), tensor(1, 1, 16, 63)),
    },
    "sdpa-blocks-nan-dropped": {
        "query": (tensor(1, 1, 9, 64), tensor(1, 1, 8, 64)),
        "value": (tensor(1, 1, 16, 64), tensor(1, 1, 16, 63)),
    },
    "layer-norm-backward-mixed-dtypes": {"input": (HALF, WHOLE), "weight": WHOLE},
    "layer-norm-empty": {"input": (NOTHING, WHOLE)},
    "batch-norm-mixed-dtypes": {"input": (HALF, WHOLE), "running_mean": WHOLE, "weight": None},
    "batch-norm-channels-last-view": {"input": (LAST_VIEW, LAST)},
    "conv2d-kernel-256": {
        "self": tensor(2, 8, 256, 4),
        "weight": (tensor(16, 1, 256, 1), tensor(16, 1, 255, 1)),
        "groups": 8,
    },
    "conv-weight-gradient-batch-65536": {"self": (tensor(65536, 1, 4), tensor(65535, 1, 4))},
    "conv-65536-taps": {"weight": (tensor(1, 1, 65536), tensor(1, 1, 65535))},
    "conv-backward-channels-last": {"self": (LAST, PLANE)},
    "gamma-functions-strided": STRIDED,
    "elu-strided": STRIDED,
    **{name: {"result": (TURNED, FLAT)} for name in STRIDED_RESULTS},
    **{name: {"self": (LAST, PLANE)} for name in CHANNELS_LAST},
    "smooth-l1-none-strided": {"reduction": (0, 1), "result": TURNED},
    "smooth-l1-none-strided-macos-14": {"reduction": (0, 1), "result": TURNED},
    "matmul-strided-out-macos-14": {"result": (tensor(2, 3, offset=6), tensor(2, 3))},
    "baddbmm-strided-out-macos-14": {"result": (tensor(2, 2, 3, offset=12), tensor(2, 2, 3))},
    "reshaped-slice-aborts": {"self": (tensor(2, 3, offset=6), tensor(2, 3))},
    "add-alpha-mixed-dtypes-aborts": {"alpha": 2, "other": (INTEGERS, WHOLE), "result": WHOLE},
    "avg-pool-half-divisor-aborts": {"divisor_override": (3, None)},
    "reflection-pad1d-backward-65536": {"self": (tensor(1, 1, 65537), tensor(1, 1, 131072))},
    "log-clamp-strided": {"result": (TURNED, FLAT)},
    "clamp-view": {"self": (COLUMNS, TURNED), "result": (COLUMNS, TURNED)},
    "clamp-view-macos-14": {"self": (tensor(4, offset=4), FLAT), "result": (tensor(4, offset=4), FLAT)},
    "unary-strided-out": {"self": FLAT, "out": (TURNED, FLAT)},
    "index-add-strided-2-5": {"result": (TURNED, FLAT)},
    "where-strided": {"result": (TURNED, FLAT)},
    "where-channels-last": {"self": (LAST, PLANE)},
    "unary-view": {"self": (TURNED_VIEW, TURNED), "result": TURNED},
    "unary-strided-input-2-0": {"self": (tensor(4, 6, stride=(1, 8)), TURNED), "result": TURNED},
    "unary-strided-int32": STRIDED,
    "clamp-integer-fractional-bound": {"self": (INTEGERS, WHOLE), "min": 0.5},
    "clamp-integer-dtype": {"self": INTEGERS, "min": (0.5, 1), "max": None},
    "clamp-tiny-bound-of-an-earlier-call": {"min": (2e-7, 2e-6), "max": None},
    "fmax-mixed-dtypes": {"self": (HALF, WHOLE), "other": WHOLE},
    "fmax-number-on-the-cpu": {"self": WHOLE, "other": (NUMBER, WHOLE)},
    "floor-divide-integers-by-floats": {"self": (INTEGERS, WHOLE), "other": WHOLE},
    "floor-divide-infinite": {"self": (WHOLE, INTEGERS)},
    "div-integers-through-float": {"rounding_mode": ("floor", None)},
    "div-floor-infinite": {"self": WHOLE, "rounding_mode": ("floor", "trunc")},
    "masked-fill-bool-value": {"value": (2, 1)},
    "addcmul-mixed-dtypes": {"self": WHOLE, "tensor1": (HALF, WHOLE), "tensor2": WHOLE},
    "addcmul-zero-value-nan": {"value": (0, 1)},
    "lerp-mixed-dtypes": {"self": HALF, "weight": (WHOLE, HALF)},
    "number-on-the-cpu-view": {"other": (ELEMENT, NUMBER)},
    "embedding-bag-last-offset": {"include_last_offset": (True, False)},
    "embedding-bag-gradient-frequency": {"scale_grad_by_freq": (True, False)},
    "scatter-into-permuted": STRIDED,
    "scatter-last-dimension-of-one": {"self": (COLUMN, FLAT), "index": tensor(2, 1)},
    "boolean-mask-two-dimensions": {"indices": ((tensor(4, 6, dtype="bool"),), (tensor(4, dtype="bool"),))},
    "index-put-no-bounds-check": {"indices": ((INTEGERS,), (tensor(4, dtype="bool"),))},
    "masked-scatter-strided-source": {"source": (TURNED, FLAT)},
    "masked-scatter-resizes-source": {"source": (FLAT, WHOLE)},
    "masked-scatter-number": {"self": (tensor(), WHOLE)},
    "lu-factor-batches": {"A": (tensor(2, 256, 256), tensor(1, 256, 256))},
    "embedding-gradient-padding": {"padding_idx": (0, -1)},
    "embedding-gradient-frequency": {"scale_grad_by_freq": (True, False)},
    "flip-dimension-of-one": {"self": COLUMN, "dims": ((1,), (0,))},
    "cat-channels-last": {"tensors": ((LAST, PLANE), (PLANE, PLANE))},
    "cat-2-31": {"result": (tensor(2**31 + 1), tensor(2**31))},
    "copy-4-gib": {"self": (tensor(2**30), tensor(2**30 - 1)), "src": tensor(1, device="cpu")},
    "copy-strided-2-32": {"self": (tensor(2**16, 2, stride=(2**17, 1)), tensor(2**8, 2, stride=(2**17, 1)))},
    "copy-into-cpu-view": {
        "self": (
            tensor(4, 6, stride=(1, 4), dtype="float16", device="cpu"),
            tensor(4, 6, dtype="float16", device="cpu"),
        ),
        "src": FLAT,
    },
    "copy-int64-into-float-slice": {"self": (tensor(4, offset=4), WHOLE), "src": INTEGERS},
    "col2im-2-32": {"self": (tensor(2**20, 2**13), tensor(2**20, 2**12))},
    "avg-pool-channels-last-view": {"self": (LAST_VIEW, LAST)},
    "avg-pool-backward-channels-last": {"self": LAST, "grad_output": (EXPANDED, LAST)},
    "avg-pool-backward-channels-last-layout": {"self": (LAST, PLANE), "grad_output": PLANE},
    "max-pool-backward-channels-last": {"self": (LAST, PLANE), "grad_output": EXPANDED},
    "max-pool-backward-channels-last-layout": {"self": LAST, "grad_output": (PLANE, LAST)},
    "max-pool-indices-ceil-mode": {"ceil_mode": True, "stride": ((3, 3), (2, 2)), "kernel_size": (2, 2)},
    "replication-pad-gradient-batch-65536": {"self": (tensor(65536, 1, 4), tensor(65535, 1, 4))},
    "grid-sampler-permuted-grid": {"grid": (TURNED, FLAT)},
    "baddbmm-zero-beta-nan": {"beta": (0, 1)},
    "baddbmm-zero-beta-nan-complex": {"beta": (0, 1)},
    "addbmm-zero-beta-nan-complex": {"beta": (0, 1)},
    "bce-backward-size-one": {"self": (tensor(4, 6, 1), tensor(4, 6)), "grad_output": (tensor(4, 6, 1), tensor(4, 6))},
    "bce-backward-size-one-wrong": {
        "self": (tensor(4, 1, 1), tensor(4, 1)),
        "grad_output": (tensor(4, 1, 1), tensor(4, 1)),
    },
    "bmm-mixed-dtypes": {"self": (INTEGERS, WHOLE), "mat2": WHOLE},
    "linear-vocabulary-outputs": {"input": (tensor(9, 8), tensor(8, 8)), "weight": tensor(50304, 8)},
    "sum-uint8-saturates": {"dtype": ("uint8", "int64")},
    "variance-empty": EMPTY,
    "variance-biased-by-default": {"correction": (None, 1)},
    "norm-zero-dtype-counts-zeros": {"p": (0, 1)},
    "all-empty": EMPTY,
    "count-nonzero-empty": EMPTY,
    "eye-view-1-13": {"out": (FLAT, TURNED)},
    "eye-strided-out": {"out": (TURNED, FLAT)},
    "eye-strided-out-macos-14": {"out": (TURNED, FLAT)},
    "norm-empty-dim": {"self": COLUMN, "dim": ((0,), (1,))},
    "norm-empty-dim-aborts": {"self": COLUMN, "dim": ((), (0,))},
    "nanmedian-rank-5": {"self": CUBE, "dim": (0, 1)},
    "median-rank-5": {"self": CUBE, "dim": (-5, -4)},
    "median-empty": EMPTY,
    "nanmedian-empty": EMPTY,
    "nll-loss-empty": EMPTY,
    "mse-loss-empty": EMPTY,
    "sort-transposed": STRIDED,
    "sort-int64-macos-15-4": {"self": (tensor(257), tensor(256)), "dim": 0},
    "unique-three-dimensions": {"self": (CUBE, FLAT)},
    "unique-counts-many": {"return_counts": True, "self": (tensor(1000000), WHOLE)},
    "unique-counts-single": {"return_counts": True, "self": (tensor(1), WHOLE)},
    "normal-five-dimensions": {"self": (CUBE, PLANE)},
    "multinomial-many-samples": {"num_samples": (2**24 + 1, 2**24)},
    "conv3d-channels-last": {"self": (tensor(1, 8, 2, 4, 4, stride=(256, 1, 128, 32, 8)), tensor(1, 8, 2, 4, 4))},
    "batch-norm-channels-last-3d": VOLUMES,
    "batch-norm-legit-channels-last-3d": VOLUMES,
    "batch-norm-update-channels-last-3d": VOLUMES,
    "elu-in-place-backward": {"is_result": (True, False)},
    "fill-strided-1-13": STRIDED,
    "batch-norm-partly-frozen-aborts": {"output_mask": ((True, False, False), (True, True, True))},
    "isin-macos-13": {"elements": (WHOLE, NOTHING), "test_elements": WHOLE},
    "amax-int64-zero": {"self": (tensor(33), tensor(32)), "result": tensor()},
    "solve-triangular-four-dimensions": {"self": (PLANE, FLAT), "B": FLAT},
    "solve-triangular-view": {
        "self": (tensor(2, 2, stride=(1, 2), offset=4), tensor(2, 2, stride=(1, 2))),
        "B": COLUMN,
    },
    "nan-to-num-empty-out": {"out": (NOTHING, WHOLE), "self": WHOLE},
    "product-complex-inner-4096": {"mat2": (tensor(4097, 2), tensor(4096, 2))},
    "linspace-integers-through-float": {"result": INTEGERS, "start": (2**24 + 1, 0), "end": 4},
    "linspace-integer-ends": {"result": INTEGERS, "start": (0.5, 0), "end": 4},
    "lstm-dropout-one": {"num_layers": 2, "dropout": (1.0, 0.5), "train": True},
    "lstm-bidirectional": {"bidirectional": (True, False)},
}
STRIDED_COMPLEX, COMPLEX = (tensor(2, 3, stride=stride, dtype="complex64") for stride in ((1, 2), (3, 1)))
#: The limitations that reports led to, in the same form.
LIMITS: dict[str, dict[str, Any]] = {
    "fill-complex": {"self": COMPLEX, "value": (1, 0)},
    "fill-complex-by-tensor": {"self": (COMPLEX, tensor(0, dtype="complex64"))},
    "zero-complex-strided": {"self": (STRIDED_COMPLEX, COMPLEX)},
    "fill-complex-value": {"self": COMPLEX, "value": (tensor(dtype="complex64"), tensor())},
    "fill-complex128": {"self": (tensor(2, dtype="complex128"), tensor(0, dtype="complex128"))},
    "fill-complex128-metal": {"self": (tensor(2, dtype="complex128"), tensor(0, dtype="complex128"))},
    "round-decimals-integers": {"decimals": (1, 0)},
    "loss-unequal-shapes": {"self": tensor(2, 150), "target": (tensor(1, 150), tensor(2, 150))},
    "linear-no-features-aborts": {"weight": (tensor(5, 0), tensor(5, 1)), "result": tensor(3, 5)},
    "linear-no-features": {"weight": tensor(5, 0), "result": (tensor(3, 5), tensor(0, 5))},
    "linear-no-features-2-7": {"weight": (tensor(5, 0), tensor(5, 1)), "result": tensor(3, 5)},
    "solve-vectors-backward": {"A": tensor(2, 2, 5, 5), "B": (tensor(2, 2, 5), tensor(2, 2, 5, 1))},
}
#: Arguments whose one value is a tuple.
WHOLE_TUPLES = {"kernel_size", "pad"}


@pytest.mark.parametrize("name", [*CASES, *LIMITS])
def test_a_condition_tells_the_reported_call_from_its_neighbour(name: str) -> None:
    condition = load().statements.by_id[name].parsed
    assert condition is not None
    for side, holds in enumerate((True, False)):
        values = {
            argument: value[side] if isinstance(value, tuple) and argument not in WHOLE_TUPLES else value
            for argument, value in (CASES | LIMITS)[name].items()
        }
        assert condition.evaluate(values) is holds, values


def test_no_report_has_an_abort_of_linear_below_32769_rows_whatever_the_strides() -> None:
    condition = ADVISORIES["linear-huge-strides-aborts"].parsed
    assert condition is not None
    assert condition.evaluate({"input": tensor(4096, 1, 1152, stride=(1152, 4718592, 1))}) is False


@pytest.mark.parametrize("grad", [tensor(), tensor(4, 6)])
def test_a_mean_of_the_loss_and_sizes_above_one_are_safe(grad: TensorSpec) -> None:
    condition = ADVISORIES["bce-backward-size-one"].parsed
    assert condition is not None
    rows = tensor(4, 6) if grad.shape else tensor(4, 6, 1)
    assert condition.evaluate({"self": rows, "grad_output": grad}) is False


def test_a_strided_complex_tensor_cannot_be_filled_with_zeros_either() -> None:
    condition = load().statements.by_id["fill-complex"].parsed
    assert condition is not None
    assert condition.evaluate({"self": STRIDED_COMPLEX, "value": 0}) is True


def test_a_number_is_no_view_of_a_tensor() -> None:
    condition = ADVISORIES["number-on-the-cpu-view"].parsed
    assert condition is not None
    assert condition.evaluate({"other": 2.0}) is False


@pytest.mark.parametrize("grad", [EXPANDED, LAST, tensor(2, 8, 1, 1)])
def test_a_gradient_that_is_channels_last_or_expanded_is_not_misread(grad: TensorSpec) -> None:
    condition = ADVISORIES["avg-pool-backward-channels-last-layout"].parsed
    assert condition is not None
    assert condition.evaluate({"self": LAST, "grad_output": grad}) is False
