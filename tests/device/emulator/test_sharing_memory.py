"""Memory of the device that others shall see: DLPack capsules, and processes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import dlpack

import opcheck
from opcheck.device.emulator.child.session import Emulation

#: torch and torch.utils.dlpack do not export these functions to type checkers.
names: Any = torch
utils: Any = dlpack


def there(release: str = "2.13") -> AbstractContextManager[Emulation]:
    return opcheck.emulate(torch=release, macos="15")


@pytest.mark.parametrize("release", ["2.9", "2.13"])
def test_dlpack_shares_the_memory(release: str) -> None:
    with there(release):
        x = torch.zeros(3, device="mps")
        assert x.__dlpack_device__() == (8, 0)
        for made in (names.from_dlpack(x), names.from_dlpack(utils.to_dlpack(x))):
            made.add_(1)
            x[0] = 5
            assert made.device == x.device
            assert made.tolist() == x.tolist()
        assert x.tolist() == [5, 2, 2]
        assert names.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
        assert utils.from_dlpack(torch.ones(2)).device.type == "cpu"


def test_dlpack_takes_views_and_moves() -> None:
    with there():
        x = torch.arange(6, device="mps").view(2, 3)
        part = names.from_dlpack(x.T[1:])
        part.zero_()
        assert x.tolist() == [[0, 0, 0], [3, 0, 0]]
        assert part.is_mps
        assert not names.from_dlpack(x, device=torch.device("cpu")).is_mps
        assert names.from_dlpack(torch.ones(2), device=torch.device("mps")).is_mps
        with pytest.raises(ValueError, match=r"cannot move"):
            names.Tensor.__dlpack__(x, dl_device=(1, 0), copy=False)


def test_a_capsule_is_taken_once() -> None:
    with there():
        capsule = utils.to_dlpack(torch.ones(2, device="mps"))
        names.from_dlpack(capsule)
        with pytest.raises(RuntimeError, match=r"consumed only once"):
            names.from_dlpack(capsule)


def test_numpy_takes_no_capsule_of_metal() -> None:
    with there(), pytest.raises((BufferError, RuntimeError), match=r"device"):
        np.from_dlpack(torch.ones(2, device="mps"))


def test_before_2_9_dlpack_knows_no_mps() -> None:
    with there("2.8"):
        x = torch.ones(2, device="mps")
        for function in (names.from_dlpack, torch.Tensor.__dlpack_device__):
            with pytest.raises(ValueError, match=r"^Unknown device type mps for Dlpack$"):
                function(x)
        for export in (utils.to_dlpack, names.to_dlpack, torch.Tensor.__dlpack__, np.from_dlpack):
            with pytest.raises(RuntimeError, match=r"^Cannot pack tensors on mps:0$"):
                export(x)


def test_what_is_shared_by_release() -> None:
    with there():
        model = torch.nn.Linear(2, 2).to("mps").share_memory()
        assert model.weight.is_shared()
        x = torch.ones(2, device="mps")
        assert x.share_memory_() is x
    with there("2.12"):
        x = torch.ones(2, device="mps")
        assert not x.is_shared()
        for share in (x.share_memory_, torch.nn.Linear(2, 2).to("mps").share_memory):
            with pytest.raises(RuntimeError, match=r"^_share_filename_: only available on CPU$"):
                share()


def test_no_tensor_goes_to_another_process() -> None:
    with there():
        queue = torch.multiprocessing.get_context("fork").SimpleQueue()
        with pytest.raises(RuntimeError, match=r"_share_filename_: only available on CPU"):
            queue.put(torch.ones(2, device="mps"))
