"""A model that starts processes: a Mac sends them what they get by pickle, and forks nothing by default."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import opcheck

DATA = TensorDataset(torch.ones(4, 4))


def add_one(number: int) -> int:
    return number + 1


def _with_loader(x: torch.Tensor) -> torch.Tensor:
    for (batch,) in DataLoader(DATA, num_workers=1):
        x = x + batch.to(x.device)
    return x


def _with_pool(x: torch.Tensor) -> torch.Tensor:
    with ProcessPoolExecutor(1) as pool:
        return x * pool.submit(add_one, 1).result()


def _with_queue(x: torch.Tensor) -> torch.Tensor:
    numbers: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=numbers.put, args=(3,))
    process.start()
    x = x * numbers.get()
    process.join()
    assert multiprocessing.get_start_method() == "spawn"
    return x


def _with_fork(x: torch.Tensor) -> torch.Tensor:
    context: Any = multiprocessing.get_context("fork")  # absent from the types of Windows
    process = context.Process(target=lambda: None)
    process.start()
    process.join()
    return x + 1


def _with_local_function(x: torch.Tensor) -> torch.Tensor:
    for _ in DataLoader(DATA, num_workers=1, collate_fn=lambda batch: batch):
        pass
    return x + 1


def _with_lock(x: torch.Tensor) -> torch.Tensor:
    multiprocessing.Process(target=add_one, args=(threading.Lock(),)).start()
    return x + 1


def _with_tensor(x: torch.Tensor) -> torch.Tensor:
    for _ in DataLoader(TensorDataset(x), num_workers=1):
        pass
    return x + 1


@pytest.mark.filterwarnings("ignore:Got pickle error")  # of the loader
@pytest.mark.parametrize(
    ("model", "raised", "way_out"),
    [
        (_with_loader, "", ""),
        (_with_pool, "", ""),
        (_with_queue, "", ""),
        (_with_fork, "", ""),
        (_with_local_function, "lambda", "at the top level of a module"),
        (_with_lock, "cannot pickle '_thread.lock' object", "num_workers=0"),
        (_with_tensor, "_share_filename_: only available on CPU", "send tensors of the CPU"),
    ],
)
def test_the_start_of_a_process_raises_what_it_raises_on_a_mac(
    model: Callable[[torch.Tensor], torch.Tensor], raised: str, way_out: str
) -> None:
    before = multiprocessing.get_start_method()
    report = opcheck.audit(model, (torch.ones(2, 4),), torch="2.13", macos="15")
    assert report.headline == ("fails" if raised else "runs natively")
    found = [finding for finding in report.findings if finding.rule == "OC126"]
    assert [raised in finding.prints for finding in found] == [True] * bool(raised)
    for finding in found:
        assert way_out in finding.hint
        (place,) = finding.locations
        assert place.location is not None
        assert place.location.file.endswith("test_started_processes.py")
    assert multiprocessing.get_start_method() == before
