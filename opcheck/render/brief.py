"""Shortens the JSON of an answer for a reader with little room, such as a language model; pure."""

import json
from collections.abc import Mapping
from typing import Any

from opcheck.common.grouping import group_values
from opcheck.common.sanitize import for_json
from opcheck.common.text import shorten
from opcheck.features import brief_keys

#: characters of a short answer: about 400 tokens of English and JSON.
BUDGET = 1200
#: What is cut in turn until the answer fits: entries of a list, characters of a text.
_CUTS = ((8, 240), (5, 160), (3, 120), (2, 100), (1, 80))
#: Suffix of the key that counts the entries that a list has lost.
LEFT_OUT = "_left_out"


def brief(text: str) -> str:
    """Return the JSON of an answer on a single line, cut down to the keys that its verb declares.

    Empty values and counts of 0 are left out, a mapping of many names to few values is turned round, lists and texts
    are cut until the answer has at most BUDGET characters; ``KEY_left_out`` counts what a list has lost.
    """
    content = json.loads(text)
    if not isinstance(content, dict):
        return text
    keys = brief_keys(str(content.get("schema", "")).removeprefix("opcheck-").partition("/")[0])
    compact = _compact(_choose(content, [key.split(".") for key in keys]) if keys else content)
    for entries, characters in _CUTS:
        written = for_json(json.dumps(_cut(compact, entries, characters), ensure_ascii=False))
        if len(written) <= BUDGET:
            break
    return written + "\n"


def _choose(value: Any, paths: list[list[str]]) -> Any:
    """Return the parts of a value at these paths, in their order; a path runs through lists."""
    if isinstance(value, list):
        return [_choose(entry, paths) for entry in value]
    if not isinstance(value, Mapping) or not all(paths):
        return value
    below = group_values((key, rest) for key, *rest in paths)
    return {key: _choose(value[key], rest) for key, rest in below.items() if key in value}


def _compact(value: Any) -> Any:
    """Leave out what is empty, and turn round what maps several names to equal values."""
    if isinstance(value, list):
        return [_compact(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    inner = {key: _compact(entry) for key, entry in value.items()}
    kept = {key: entry for key, entry in inner.items() if entry is False or entry not in (None, 0, "", [], {})}
    return _turned_round(kept) if len(kept) > 3 else kept


def _turned_round(names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``{"native": "float32, float16"}`` for states by name; other mappings as they are."""
    if not all(isinstance(value, Mapping) and "status" in value for value in names.values()):
        return names
    by_state = group_values((", ".join(map(str, state.values())), name) for name, state in names.items())
    return {state: ", ".join(of_state) for state, of_state in by_state.items()}


def _cut(value: Any, entries: int, characters: int) -> Any:
    if isinstance(value, str):
        return shorten(value, characters)
    if isinstance(value, list):
        return [_cut(entry, entries, characters) for entry in value[:entries]]
    if not isinstance(value, Mapping):
        return value
    short = {}
    for key, entry in value.items():
        short[key] = _cut(entry, entries, characters)
        if isinstance(entry, list) and len(entry) > entries:
            short[key + LEFT_OUT] = len(entry) - entries
    return short
