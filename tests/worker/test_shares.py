"""Work in copies of this process."""

from __future__ import annotations

import os
import time

import pytest

from opcheck.worker import shares


def test_each_share_is_computed_in_a_process_of_its_own() -> None:
    found = shares.compute(lambda number: (number, os.getpid()), 3)
    assert [number for number, _ in found] == [0, 1, 2]
    assert len({process for _, process in found}) == 3


def test_what_a_copy_cannot_do_is_done_here(capfd: pytest.CaptureFixture[str]) -> None:
    here = os.getpid()

    def work(number: int) -> int:
        if number and os.getpid() != here:
            raise MemoryError
        return number

    assert shares.compute(work, 2) == [0, 1]
    assert "MemoryError" in capfd.readouterr().err


def test_one_share_needs_no_copy() -> None:
    assert shares.compute(lambda _: os.getpid(), 1) == [os.getpid()]


def test_a_signal_waits_for_no_copy() -> None:
    def work(number: int) -> int:
        if not number:
            raise KeyboardInterrupt
        time.sleep(60)
        return number

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        shares.compute(work, 3)
    assert time.monotonic() - start < 4
