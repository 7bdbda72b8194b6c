"""Work in a child process, so that a crash in torch's C++ ends one OpInfo and not the recording."""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Died(NamedTuple):
    """The child ended by a signal, or with an error that it could not report."""

    how: str


def isolated(work: Callable[[], T]) -> T | Died:
    """What ``work`` returns, run in a fork of this process; the result must pickle."""
    descriptor, name = tempfile.mkstemp(prefix="opcheck-opinfo-")
    os.close(descriptor)
    path = Path(name)
    try:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                path.write_bytes(pickle.dumps(work()))
                code = 0
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]  # noqa: S301 - written above
        if os.WIFSIGNALED(status):
            return Died(f"the process died of signal {os.WTERMSIG(status)}")
        return Died(f"the process ended with code {os.waitstatus_to_exitcode(status)}")
    finally:
        path.unlink(missing_ok=True)
