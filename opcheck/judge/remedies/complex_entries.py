"""Remedies for complex numbers: real tensors whose last dimension holds real and imaginary part."""

from __future__ import annotations

from opcheck.judge.remedies.remedy import TESTED, Remedy

_CLOSE = 2e-6
_GRADIENT = 1e-5


def _remedy(
    name: str, title: str, kinds: tuple[str, ...], before: str, after: str, **others: object
) -> Remedy:
    content = {
        "id": name,
        "title": title,
        "kinds": kinds,
        "before": before,
        "after": after,
        "module": "complex_parts",
        "functions": (name,),
        "tolerance": _CLOSE,
        "gradient": _GRADIENT,
        **others,
    }
    return Remedy(**content)  # type: ignore[arg-type]


COMPLEX = (
    _remedy(
        "rotate_pairs",
        "Rotary embedding without complex numbers",
        ("complex/rope", "aten::view_as_complex", "aten::polar"),
        "{x} = torch.view_as_real(\n    torch.view_as_complex({x}.unflatten(-1, (-1, 2))) * {freqs_cis}\n).flatten(-2)",
        "{x} = rotate_pairs({x}, {angles}.cos(), {angles}.sin())",
        remark="`freqs_cis` is `torch.polar(ones, angles)`; keep the angles' cosines and sines as buffers.",
    ),
    _remedy(
        "complex_mul",
        "A complex product as real ones",
        ("complex/python_complex", "complex/mul", "complex/complex_made"),
        "{out} = {a} * {b}",
        "{out} = complex_mul({a}, {b})  # each [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_matmul",
        "A complex matrix product as four real ones",
        ("complex/matmul", "complex/mm", "complex/bmm"),
        "{out} = {a} @ {b}",
        "{out} = complex_matmul({a}, {b})  # each [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_abs",
        "The absolute value from the two parts",
        ("complex/abs",),
        "{out} = {z}.abs()",
        "{out} = complex_abs({z})  # [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_angle",
        "The angle from the two parts",
        ("complex/angle",),
        "{out} = {z}.angle()",
        "{out} = complex_angle({z})  # [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_exp",
        "The exponential of a complex number from its two parts",
        ("complex/exp",),
        "{out} = {z}.exp()",
        "{out} = complex_exp({z})  # [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_polar",
        "Numbers from size and angle as two parts",
        ("complex/polar",),
        "{z} = torch.polar({size}, {angle})",
        "{z} = complex_polar({size}, {angle})  # [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_softmax",
        "A softmax of the sizes that keeps each phase",
        ("complex/softmax",),
        "{out} = torch.polar({z}.abs().softmax(-1), {z}.angle())",
        "{out} = complex_softmax({z})  # [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_normalize",
        "A complex layer norm on the two parts",
        ("complex/normalisation",),
        "{z} = {z} - {z}.mean(-1, keepdim=True)\n"
        "{out} = {z} * torch.rsqrt({z}.abs().square().mean(-1, keepdim=True) + 1e-5)",
        "{out} = complex_normalize({z})  # [..., 2]: real, imaginary",
        gradient=1e-4,  # of a normalization: what cancels leaves the rounding
    ),
    _remedy(
        "complex_linear",
        "A complex linear layer as real ones",
        ("complex/linear", "complex/addmm"),
        "{out} = torch.nn.functional.linear({z}, {weight}, {bias})",
        "{out} = complex_linear({z}, {weight}, {bias})  # each [..., 2]: real, imaginary",
    ),
    _remedy(
        "complex_solve",
        "A complex system of equations as a real one of twice the size",
        ("complex/linalg_solve", "complex/_linalg_solve_ex"),
        "{out} = torch.linalg.solve({a}, {b})",
        "{out} = complex_solve({a}, {b})  # each [..., 2]: real, imaginary",
        tolerance=1e-3,
        gradient=None,
        targets=TESTED[3:],
    ),
)
