"""Where CPU tensors of rare dtypes are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opcheck.capture.child.recording.dtype_origins import Births
from opcheck.model.records import Birth


def _made(make: Callable[[], torch.Tensor]) -> Birth | None:
    births = Births()
    with births.while_loading():
        tensor = make()
    return births.origin(tensor)


ORIGINS: dict[str, tuple[str, Callable[[], Any]]] = {
    "from_numpy": ("numpy", lambda: torch.from_numpy(np.ones(3))),
    "tensor of an array": ("numpy", lambda: torch.tensor(np.ones(3))),
    "as_tensor": ("numpy", lambda: torch.as_tensor(np.ones(3))),
    "numpy number": ("numpy_scalar", lambda: torch.tensor(np.float64(3))),
    "dtype given": ("dtype_given", lambda: torch.zeros(3, dtype=torch.float64)),
    "double": ("cast", lambda: torch.ones(3).double()),
    "to": ("cast", lambda: torch.ones(3).to(torch.float64)),
    "module": ("module_cast", lambda: torch.nn.Linear(2, 2).double().weight),
    "python complex": ("python_complex", lambda: torch.ones(3) * 1j),
    "polar": ("complex_made", lambda: torch.polar(torch.ones(3), torch.ones(3))),
    "fft": ("fft", lambda: torch.fft.rfft(torch.ones(4))),
    "stft": ("fft", lambda: torch.stft(torch.ones(16), 4, window=torch.ones(4), return_complex=True)),
    "eigenvalues": ("eigenvalues", lambda: torch.linalg.eigvals(torch.eye(2))),
}


@pytest.mark.parametrize("name", ORIGINS)
def test_the_line_and_the_kind(name: str) -> None:
    how, make = ORIGINS[name]
    made = _made(make)
    assert made is not None
    assert made.how == how
    assert made.location is not None
    assert made.location.file.endswith("test_dtype_origins.py")


def test_a_default_dtype_is_born_where_it_was_set() -> None:
    def make() -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        try:
            return torch.zeros(3)
        finally:
            torch.set_default_dtype(torch.float32)

    made = _made(make)
    assert made is not None
    assert (made.how, made.api) == ("default_dtype_set", "torch.set_default_dtype")
    assert made.location is not None
    assert "set_default_dtype" in made.location.text


def test_what_is_computed_of_it_keeps_its_origin() -> None:
    def make() -> torch.Tensor:
        table = torch.from_numpy(np.ones(3))
        other = table * 2
        return torch.nn.Parameter(other.view(3, 1))

    made = _made(make)
    assert made is not None
    assert made.how == "numpy"
    assert made.location is not None
    assert "from_numpy" in made.location.text


def test_nothing_of_ordinary_dtypes_and_nothing_is_left_behind() -> None:
    before = (torch.from_numpy, torch.set_default_dtype)
    assert _made(lambda: torch.ones(3)) is None
    assert (torch.from_numpy, torch.set_default_dtype) == before
