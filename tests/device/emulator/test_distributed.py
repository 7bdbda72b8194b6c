"""Collectives and groups of processes on the emulated Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.emulator.test_processes import run

_DISTRIBUTED = """import os, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group(BACKEND)
dist.barrier()
"""


@pytest.mark.parametrize(
    ("release", "statement", "op"),
    [
        ("2.13", "dist.all_reduce(torch.ones(2, device='mps'))", "distributed operator 'c10d::allreduce_'"),
        ("2.10", "dist.all_reduce(torch.ones(2, device='mps'))", "The operator 'c10d::allreduce_'"),
        ("2.13", "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to('mps'))", "'c10d::allgather_'"),
    ],
)  # fmt: skip
def test_collectives_have_no_kernel_for_mps(tmp_path: Path, release: str, statement: str, op: str) -> None:
    head = _DISTRIBUTED.replace("BACKEND", '"gloo"')
    ended = run(tmp_path, statement, f"--torch={release}", head=head)
    assert (ended.code, ended.report["headline"]) == (1, "fails")
    assert op in ended.written
    assert "is not currently implemented for the MPS device" in ended.written


def test_with_the_fallback_variable_old_collectives_are_not_known(tmp_path: Path) -> None:
    head = _DISTRIBUTED.replace("BACKEND", '"gloo"')
    statement = "dist.broadcast(torch.ones(2, device='mps'), 0)"
    ended = run(tmp_path, statement, "--torch=2.10", "--fallback", head=head)
    assert ended.report["headline"] == "could not tell"
    ended = run(tmp_path, statement, "--torch=2.11", "--fallback", head=head)
    assert ended.report["headline"] == "fails"


def test_before_2_8_no_backend_is_the_default(tmp_path: Path) -> None:
    head = _DISTRIBUTED.replace("BACKEND", "")
    ended = run(tmp_path, "", "--torch=2.7", head=head)
    assert "ValueError: We detected accelerator mps on your machine" in ended.written
