"""What a sweep is to do: the tasks that are left, and what the folder says of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opcheck.common.files import is_file
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import OpLists
from opcheck.project.sweep.folder import About, Folder, key_of, sources
from opcheck.project.sweep.records import Model, Task, target_name
from opcheck.project.sweep.worker import versions


class Plan(NamedTuple):
    """The tasks that are left, how many models need none, and the description for the folder."""

    tasks: tuple[Task, ...]
    done: int
    about: About


def plan(
    models: Sequence[Model],
    targets: Sequence[Target],
    modes: Sequence[Mode],
    folder: Folder,
    lists: OpLists,
    *,
    small: bool,
    timeout: float,
    memory: float,
    fresh: bool,
) -> Plan:
    """Which of the models, in which modes, have no result in the folder yet."""
    here, source = versions(), sources()
    settings: dict[str, object] = {
        "op_lists": lists.sha256,
        "sources": source,
        "small": small,
        **here,
    }
    tasks: list[Task] = []
    keys: list[str] = []
    for model in models:
        own = {**settings, "file": _content(model.spec)}
        named = {mode: key_of(model, mode, targets, own) for mode in modes}
        keys += named.values()
        left = {mode: key for mode, key in named.items() if fresh or not folder.has(key)}
        if left:
            task = Task(
                model=model,
                keys=left,
                targets=tuple(targets),
                small=small,
                timeout=timeout,
                memory=memory,
                versions=here,
            )
            tasks.append(task)
    about = About(
        op_lists=lists.digest,
        sources=source,
        packages=here,
        targets=tuple(map(target_name, targets)),
        modes=tuple(modes),
        small=small,
        keys=tuple(keys),
    )
    return Plan(tuple(tasks), len(models) - len(tasks), about)


def _content(spec: str) -> str:
    """Digest of the file that a model is named in; empty where it is named in none."""
    name = spec if is_file(spec) else spec.rpartition(":")[0]
    file = Path(name)
    return hashlib.sha256(file.read_bytes()).hexdigest() if name and is_file(file) else ""
