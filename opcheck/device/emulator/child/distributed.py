"""``torch.distributed`` and ``torch.multiprocessing`` as they are on a Mac."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from opcheck.common.replacing import replaced
from opcheck.common.versions import Version
from opcheck.simulator.tensor import is_on_mps
from opcheck.tracing.torch_private.backend import ACCELERATOR, SHARING_STRATEGIES, VERIFY_PARAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opcheck.common.versions import Target

#: distributed_c10d.py: the first release whose init_process_group() takes gloo for a machine with mps.
_DEFAULT_BACKEND = Version(2, 8)
_STRATEGY = "file_system"


@contextlib.contextmanager
def processes_of_mac(target: Target) -> Iterator[None]:
    """For the length of the block, the two packages do what they do on a Mac.

    * DistributedDataParallel begins with the collective that it begins with there.
    * ``init_process_group()`` without a backend raises before 2.8.
    * ``file_system`` is the one way to share tensors (torch/multiprocessing/__init__.py).
    """
    # This machine shares them in its own way all the same: file_system needs a helper process.
    strategy: Callable[[], str] = torch.multiprocessing.get_sharing_strategy

    def strategy_of_mac() -> str:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return strategy() if asks.startswith("torch.") else _STRATEGY

    changes: list[tuple[Any, str, Any]] = [
        (torch.multiprocessing, "get_sharing_strategy", strategy_of_mac),
        (*SHARING_STRATEGIES, {_STRATEGY}),
    ]
    if dist.is_available():
        original = VERIFY_PARAMS.value()

        def verify(group: Any, tensors: Sequence[torch.Tensor], *logger: Any) -> None:
            # torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes: it gathers the number of
            # parameters on their device, and C++ takes the device of simulated tensors for the CPU.
            if any(is_on_mps(tensor) for tensor in tensors[:1]):
                number = torch.tensor([len(tensors)], device=tensors[0].device)
                numbers = [torch.empty_like(number) for _ in range(group.size())]
                dist.all_gather(numbers, number, group=group)
            original(group, tensors, *logger)

        backends = {
            device: name
            for device, name in dist.Backend.default_device_backend_map.items()
            if device != "mps" or target.torch >= _DEFAULT_BACKEND
        }
        changes += [
            (*ACCELERATOR, lambda *_: torch.device("mps")),
            (*VERIFY_PARAMS, verify),
            (dist.Backend, "default_device_backend_map", backends),
        ]
    with replaced(changes):
        yield
