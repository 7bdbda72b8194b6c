"""Programs that bring a rare dtype to MPS, each from another origin: its line ends in ``# origin``.

Each is a factory as a user writes it: it takes nothing and gives a module and its inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Made = tuple[nn.Module, Any]
X = (4, 8)


class Scaled(nn.Module):
    """Multiplies its input by a buffer."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table


class Calls(nn.Module):
    """Runs one function on its input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def numpy_array() -> Made:
    window = np.hanning(8)
    return Scaled(torch.from_numpy(window)), torch.ones(X)  # origin


def numpy_as_tensor() -> Made:
    return Scaled(torch.as_tensor(np.linspace(0, 1, 8))), torch.ones(X)  # origin


def numpy_tensor() -> Made:
    return Scaled(torch.tensor(np.arange(8) / 8)), torch.ones(X)  # origin


def numpy_asarray() -> Made:
    return Scaled(torch.asarray(np.ones(8))), torch.ones(X)  # origin


def numpy_number() -> Made:
    return Scaled(torch.tensor(np.sqrt(8.0))), torch.ones(X)  # origin


def numpy_number_on_the_device() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x * torch.tensor(np.float64(0.5), device=x.device)  # origin

    return Calls(forward), torch.ones(X)


def numpy_parameter() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.from_numpy(np.ones(8)))  # origin

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain

    return Net(), torch.ones(X)


def numpy_and_then_computed() -> Made:
    angles = torch.from_numpy(np.arange(8) / 8)  # origin
    table = torch.sin(angles) + 1
    return Scaled(table.view(1, 8)), torch.ones(X)


def numpy_in_the_forward() -> Made:
    def forward(x: Tensor) -> Tensor:
        mask = torch.from_numpy(np.tril(np.ones((4, 8))))  # origin
        return x * mask.to(x.device)

    return Calls(forward), torch.ones(X)


def scipy_window() -> Made:
    from scipy.signal import get_window

    return Scaled(torch.tensor(get_window("hann", 8))), torch.ones(X)  # origin


def betas_of_a_scheduler() -> Made:
    betas = np.linspace(1e-4, 0.02, 8)
    alphas = torch.from_numpy(np.cumprod(1 - betas))  # origin
    return Scaled(alphas.sqrt()), torch.ones(X)


def default_dtype() -> Made:
    torch.set_default_dtype(torch.float64)  # origin
    try:
        return Scaled(torch.zeros(8)), torch.ones(X, dtype=torch.float32)
    finally:
        torch.set_default_dtype(torch.float32)


def double_method() -> Made:
    return Scaled(torch.arange(0.0, 1.0, 0.125).double()), torch.ones(X)  # origin


def double_attribute() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = torch.arange(0.0, 1.0, 0.125).double()  # origin

        def forward(self, x: Tensor) -> Tensor:
            return x + self.steps.to(x.device)

    return Net(), torch.ones(X)


def double_on_the_device() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x.double().mean()  # origin

    return Calls(forward), torch.ones(X)


def to_float64() -> Made:
    def forward(x: Tensor) -> Tensor:
        y = x.relu()
        return y.to(torch.float64).exp()  # origin

    return Calls(forward), torch.ones(X)


def to_by_type_name() -> Made:
    return Scaled(torch.ones(8).type(torch.float64)), torch.ones(X)  # origin


def module_double() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gain

    net = Net()
    net.double()  # origin
    return net, torch.ones(X)


def dtype_of_a_factory() -> Made:
    return Scaled(torch.linspace(0, 1, 8, dtype=torch.float64)), torch.ones(X)  # origin


def dtype_of_a_factory_on_the_device() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x * torch.linspace(0, 1, 8, dtype=torch.float64, device=x.device)  # origin

    return Calls(forward), torch.ones(X)


def dtype_of_a_list() -> Made:
    return Scaled(torch.tensor([0.5] * 8, dtype=torch.float64)), torch.ones(X)  # origin


def dtype_of_a_sum() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x.relu().sum(dtype=torch.float64)  # origin

    return Calls(forward), torch.ones(X)


def dtype_of_a_cumulative_sum() -> Made:
    def forward(x: Tensor) -> Tensor:
        return torch.cumsum(x, -1, dtype=torch.float64).float()  # origin

    return Calls(forward), torch.ones(X)


def dtype_of_new_tensor() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x + x.new_zeros(8, dtype=torch.float64)  # origin

    return Calls(forward), torch.ones(X)


def dtype_of_a_random_draw() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x + torch.randn(8, dtype=torch.float64, device=x.device)  # origin

    return Calls(forward), torch.ones(X)


def buffer_of_bytes() -> Made:
    data = bytearray(np.ones(8).tobytes())
    return Scaled(torch.frombuffer(data, dtype=torch.float64)), torch.ones(X)  # origin


def complex_number() -> Made:
    def forward(x: Tensor) -> Tensor:
        y = x * 1j  # origin
        return y.abs()

    return Calls(forward), torch.ones(X)


def complex_polar() -> Made:
    def forward(x: Tensor) -> Tensor:
        return torch.view_as_real(torch.polar(x.abs(), x))  # origin

    return Calls(forward), torch.ones(X)


def complex_table() -> Made:
    freqs = torch.arange(4.0)
    return Scaled(torch.polar(torch.ones(4), freqs).repeat(2)), torch.ones(X)  # origin


def complex_of_real_pairs() -> Made:
    def forward(x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.view(4, 4, 2))  # origin
        return torch.view_as_real(z * z)

    return Calls(forward), torch.ones(X)


def complex_of_two_parts() -> Made:
    def forward(x: Tensor) -> Tensor:
        return torch.complex(x, x).angle()  # origin

    return Calls(forward), torch.ones(X)


def complex_spectrum() -> Made:
    def forward(x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x)  # origin
        return spectrum.abs()

    return Calls(forward), torch.ones(X)


def complex_stft() -> Made:
    def forward(x: Tensor) -> Tensor:
        window = torch.ones(4, device=x.device)
        frames = torch.stft(x, 4, window=window, return_complex=True)  # origin
        return frames.abs()

    return Calls(forward), torch.ones(4, 32)


def complex_parameter() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, dtype=torch.complex64))  # origin

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).abs()

    return Net(), torch.ones(X)


def complex_of_numpy() -> Made:
    roots = np.exp(2j * np.pi * np.arange(8) / 8)
    return Scaled(torch.from_numpy(roots)), torch.ones(X)  # origin


def half_complex() -> Made:
    return Scaled(torch.ones(8, dtype=torch.complex32)), torch.ones(X)  # origin


def unsigned_table() -> Made:
    return Scaled(torch.ones(8, dtype=torch.uint16)), torch.ones(X)  # origin


def unsigned_numpy() -> Made:
    return Scaled(torch.from_numpy(np.ones(8, dtype=np.uint32))), torch.ones(X)  # origin


def float8_weight() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(8).to(torch.float8_e4m3fn))  # origin

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight.float()

    return Net(), torch.ones(X)


# -- and programs that bring none --------------------------------------------------------------------------


def stays_on_the_cpu() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = float(torch.from_numpy(np.ones(8)).mean())

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale

    return Net(), torch.ones(X)


def cast_before_the_move() -> Made:
    return Scaled(torch.from_numpy(np.ones(8)).float()), torch.ones(X)


def plain_numbers() -> Made:
    def forward(x: Tensor) -> Tensor:
        return x * np.float64(0.5) + 2.0

    return Calls(forward), torch.ones(X)
