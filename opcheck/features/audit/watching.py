"""Waits for changes of the files that an audit has read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from opcheck.worker.dependency_tracking import Dependencies

#: Seconds between two looks at the files of a model that is watched.
_LOOK = 0.3


def changes(read: Dependencies, model: str) -> Iterator[str]:
    """Wait for changes of the files that an audit has read; yield the name of the first that changed, each time.

    Args:
        read: what the audit has read.
        model: its name, the file of which counts too.
    """
    paths = [Path(name) for kind, name, _ in read.seen if kind != "environment"]
    file = Path(model.partition(":")[0])
    with contextlib.suppress(OSError, ValueError):
        paths += [file] if file.exists() else []
    before = {path: _state(path) for path in paths}
    while True:
        time.sleep(_LOOK)
        for path in paths:
            now = _state(path)
            if now != before[path]:
                before[path] = now
                yield path.name
                break


def _state(path: Path) -> tuple[int, int] | None:
    try:
        result = path.stat()
    except OSError:
        return None
    return result.st_mtime_ns, result.st_size
