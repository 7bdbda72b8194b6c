"""Remedies for steps that lose their digits in float32."""

from __future__ import annotations

from opcheck.judge.remedies.remedy import Remedy

_CLOSE = 1e-6
_EAGER = (
    "Run it operator by operator: a compiler that reorders floating arithmetic may take the "
    "compensation out again."
)

PRECISION = (
    Remedy(
        id="variance",
        title="A variance from the differences, not from two means of squares",
        kinds=("precision/variance", "aten::sub", "aten::var"),
        before="{var} = ({x}.double() ** 2).mean(-1) - {x}.double().mean(-1) ** 2",
        after="{var} = two_pass_variance({x})",
        module="summing",
        functions=("two_pass_variance",),
        tolerance=1e-5,
        gradient=1e-3,
        remark="Held against float64 for means up to a thousand times the spread.",
    ),
    Remedy(
        id="sum",
        title="A sum that keeps what rounding loses",
        kinds=("precision/sum", "float64/accumulate", "aten::sum"),
        before="{total} = {x}.double().sum(-1)",
        after="{total} = compensated_sum({x})",
        module="summing",
        functions=("compensated_sum",),
        tolerance=_CLOSE,
        gradient=_CLOSE,
        remark=_EAGER,
    ),
    Remedy(
        id="mean",
        title="A mean that keeps what rounding loses",
        kinds=("precision/mean", "aten::mean"),
        before="{mean} = {x}.double().mean(-1)",
        after="{mean} = compensated_mean({x})",
        module="summing",
        functions=("compensated_sum", "compensated_mean"),
        tolerance=_CLOSE,
        gradient=_CLOSE,
        remark=_EAGER,
    ),
    Remedy(
        id="cumsum",
        title="A running sum that keeps what rounding loses",
        kinds=("precision/cumsum", "aten::cumsum"),
        before="{out} = {x}.double().cumsum(-1)",
        after="{out} = compensated_cumsum({x})",
        module="summing",
        functions=("compensated_cumsum",),
        tolerance=_CLOSE,
        gradient=1e-5,
        remark=_EAGER
        + " log2(n) passes over the tensor. Each number is right to float32's last digits, however long.",
    ),
    Remedy(
        id="wrapped_phase",
        title="A running phase without its whole turns",
        kinds=("precision/phase",),
        before="{wave} = torch.sin(2 * torch.pi * {f}.double().cumsum(-1))",
        after="{wave} = torch.sin(2 * torch.pi * wrapped_phase({f}))",
        module="summing",
        functions=("wrapped_phase",),
        tolerance=1e-3,
        remark="For oscillators and vocoders: the sine of a phase of thousands of turns has no digits left in float32.",
    ),
    Remedy(
        id="large_angle",
        title="The sine of a large product",
        kinds=("precision/sine", "aten::sin", "aten::cos"),
        before="{wave} = torch.sin(2 * torch.pi * {t}.double() * {f}.double())",
        after="{wave} = torch.sin(2 * torch.pi * phase_of_product({t}, {f}))",
        module="two_floats",
        functions=("two_product", "phase_of_product"),
        tolerance=1e-5,
        remark=_EAGER
        + " The product is kept in two float32 until its whole turns are gone; both factors must be exact in "
        "float32 themselves.",
    ),
    Remedy(
        id="two_floats",
        title="Numbers of two float32 where float64's digits are needed",
        kinds=("precision/digits", "float64/arithmetic"),
        before="{out} = {a} * {b} + {c}  # float64",
        after="{out} = pair_add(pair_mul({a}, {b}), {c})  # each a pair: high, low",
        module="two_floats",
        functions=("two_sum", "two_product", "pair_add", "pair_mul"),
        tolerance=1e-12,
        remark=_EAGER
        + " 48 bits of digits at some twenty operations each; split a float64 tensor on the CPU: `high = x.float()"
        "; low = (x - high.double()).float()`.",
    ),
)
