"""Numbers of two float32: 48 bits of digits where float64 has 53, and float32's range."""

import torch


def two_sum(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rounded sum, and exactly what the rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rounded product, and exactly what the rounding lost (for factors below 1e34)."""
    product = a * b
    # Each factor in two halves of 12 bits, whose products are exact.
    scaled_a, scaled_b = a * 4097.0, b * 4097.0
    a_high, b_high = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def pair_add(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of two such numbers."""
    high, low = two_sum(a[0], b[0])
    return two_sum(high, low + a[1] + b[1])


def pair_mul(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Their product."""
    high, low = two_product(a[0], b[0])
    return two_sum(high, low + a[0] * b[1] + a[1] * b[0])


def phase_of_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a * b`` without its whole turns: for ``sin(2 * pi * a * b)`` where the product is large."""
    high, low = two_product(a, b)
    return (high - torch.floor(high)) + low
