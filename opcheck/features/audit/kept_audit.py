"""An audit whose report is kept: while nothing that it depends on has changed, the next one takes it from the cache."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from opcheck.capture.request import CaptureRequest
from opcheck.common.caches import user_cache
from opcheck.data.registrations import OpLists
from opcheck.model.records import Record, Report
from opcheck.report_cache import Cache, dependencies
from opcheck.worker.dependency_tracking import Dependencies

#: Seconds between two looks at the files of a model that is watched.
_LOOK = 0.3


class Audit(Record, frozen=True, kw_only=True):
    """A report, and what it depends on."""

    report: Report
    read: Dependencies
    #: whether the report comes from the cache
    kept: bool = False


def folder() -> Path:
    """Return the folder of the reports that ``opcheck audit`` keeps."""
    return user_cache() / "audit"


def audit(
    request: CaptureRequest,
    lists: OpLists,
    *,
    cache: Cache | None,
    mac: int = 0,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
    failed: Callable[[Dependencies], None] = lambda _read: None,
) -> Audit:
    """Return the report of ``judge.pipeline.audit``, from the cache if it is there.

    Args:
        request: the model, its inputs and the target.
        lists: the op lists to judge by.
        cache: where reports are kept; None: nowhere.
        mac: memory in GB of the Mac that it should fit; 0: none in particular.
        progress: called with the stages of the capture.
        show_output: pass on what the model prints, to stderr.
        failed: called with what was read by an audit that raises.

    Raises:
        OpcheckError: as ``judge.pipeline.audit`` does.
    """
    about = f"memory={mac}"
    # The graph is written by the run, and what the model prints is only in a run.
    readable = cache is not None and not request.save_graph and not show_output
    entry = cache.entry(request, about) if cache is not None and readable else None
    if entry is not None:
        return Audit(report=entry.report, read=entry.dependencies, kept=True)
    from opcheck.judge import pipeline

    with tempfile.TemporaryDirectory(prefix="opcheck-") as scratch:
        notes = Path(scratch) / "notes.jsonl"
        noted = msgspec.structs.replace(request, notes=str(notes))
        try:
            report = pipeline.audit(
                noted, lists, progress=progress, show_output=show_output, mac=mac
            )
        except BaseException:
            failed(dependencies(notes, request))
            raise
        read = dependencies(notes, request)
    if cache is not None:
        cache.keep(request, report, read, about)
    return Audit(report=report, read=read)


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
