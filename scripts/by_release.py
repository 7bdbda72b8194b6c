"""Writes what was recorded of each release as one file, in which an entry has a row only where it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opcheck.common.versions import Version


def text(
    head: Mapping[str, Any], key: str, recorded: Mapping[str, Mapping[str, tuple[Any, Any]]]
) -> str:
    """Return the JSON of a file with one line an entry: each holds its rows from the release on that changes it.

    Args:
        head: what the file holds before the entries.
        key: where the entries stand.
        recorded: by release line, the two values of each entry; the first is None where there is none.
    """
    lines = sorted(recorded, key=Version.parse)
    rows: dict[str, list[Any]] = {}
    for name in sorted({name for line in lines for name in recorded[line]}):
        for line in lines:
            value = list(recorded[line].get(name, (None, None)))
            kept = rows.setdefault(name, [])
            if (kept and kept[-1][1:] == value) or (not kept and value[0] is None):
                continue
            kept.append([line, *value])
    body = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}"
        for name, value in rows.items()
    )
    return f'{json.dumps(head, separators=(",", ":"))[:-1]},\n"{key}":{{\n{body}\n}}}}\n'
