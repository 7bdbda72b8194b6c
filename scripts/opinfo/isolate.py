"""Work in a child process, so that a crash in torch's C++ ends one OpInfo and not the recording."""

from __future__ import annotations

import math
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from opcheck.worker.platform import Fork, how_it_ended

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Died(NamedTuple):
    """The child ended by a signal, or with an error that it could not report."""

    how: str


def isolated(work: Callable[[], T]) -> T | Died:
    """What ``work`` returns, run in a fork of this process; the result must pickle."""
    with tempfile.TemporaryDirectory(prefix="opcheck-opinfo-") as folder:
        path = Path(folder, "result")

        def live() -> int:
            path.write_bytes(pickle.dumps(work()))
            return 0

        code = Fork(live).end(math.inf)
        if code:
            return Died(f"the process {how_it_ended(code)}")
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]  # noqa: S301 - written above
