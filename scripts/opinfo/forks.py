"""Work in child processes, so that a crash in torch's C++ ends a few operators and not the whole."""

import functools
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

import torch

from opcheck.worker.worker import WorkerError, run_forked

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def run_in_forks(
    items: Sequence[Item],
    work: Callable[[Sequence[Item]], Answer],
    answer: Any,
    died: Callable[[Item, WorkerError], Answer],
    *,
    chunk: int,
    seconds: float,
) -> Iterator[Answer]:
    """Yield the answers of ``work`` for a few items at a time; where a fork dies, its items are tried in halves.

    Args:
        items: what is worked on.
        work: its answer can be written as JSON.
        answer: the type of that.
        died: what stands for the answer of a single item whose fork died.
        chunk: how many items a fork gets at the most.
        seconds: how long a fork may take for each of them.
    """
    for start in range(0, len(items), chunk):
        some = items[start : start + chunk]
        try:
            yield run_forked(functools.partial(_work_alone, work, some), answer, seconds * len(some), quiet=True)
        except WorkerError as error:
            if len(some) == 1:
                yield died(some[0], error)
            else:
                half = (len(some) + 1) // 2
                yield from run_in_forks(some, work, answer, died, chunk=half, seconds=seconds)


def _work_alone(work: Callable[[Sequence[Item]], Answer], items: Sequence[Item]) -> Answer:
    torch.set_num_threads(1)  # see run_forked
    return work(items)


def record_in_forks(
    names: Sequence[str],
    work: Callable[[Sequence[str]], dict[str, Answer]],
    answer: Any,
    *,
    chunk: int,
    seconds: float,
    label: str = "",
) -> dict[str, Answer]:
    """Return what ``work`` records of names, in forks; a name whose fork died is printed below a label and left out."""

    def died(name: str, error: WorkerError) -> dict[str, Answer]:
        print(f"{label}{name}: {error}", file=sys.stderr)
        return {}

    made = run_in_forks(names, work, answer, died, chunk=chunk, seconds=seconds)
    return {name: value for part in made for name, value in part.items()}


def in_processes(work: Callable[[Item], Answer], items: Iterable[Item], number: int = 1) -> list[Answer]:
    """Return what a function returns for each item, each in a process of its own that has imported nothing before."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(number, mp_context=spawn, max_tasks_per_child=1) as pool:
        return list(pool.map(work, items))
