"""The words by which people call operators, and the names that are no operators (words.yaml)."""

import re
from pathlib import Path
from typing import Any

from opcheck.common.names import DTYPE_ALIASES, DTYPES
from opcheck.common.yaml_text import load_shipped

_TABLE: dict[str, Any] = load_shipped(Path(__file__).with_name("words.yaml"))

#: A usual word -> the Python name or the operator that it means.
WORDS: dict[str, str] = _TABLE["words"]

#: Names of torch that call no operator -> why, and what to do next.
WITHOUT_OPERATORS: dict[str, tuple[str, str]] = {
    name: (row["why"], row["next"]) for row in _TABLE["without_operators"] for name in row["names"]
}

#: Operators of which another overload is the usual one -> that overload.
USUAL_OVERLOADS: dict[str, str] = _TABLE["usual_overloads"]

#: Operators that releases have removed -> the first release without it, and what to write instead; or nothing.
REMOVED: dict[str, tuple[str, str]] = {
    op: (release, instead) for op, (release, instead) in _TABLE["removed"].items()
}

#: Functions and methods that no release of the lists has, as people write them -> what to write instead.
REMOVED_FUNCTIONS: dict[str, str] = {
    f"{place}.{name}": instead
    for name, instead in _TABLE["removed_functions"].items()
    for place in ("torch", "Tensor", "torch.Tensor")
}

MODULES: dict[str, str] = _TABLE["modules"]
RENAMED: dict[str, str] = _TABLE["renamed"]
LIBRARY_CALLS: dict[str, str] = _TABLE["library_calls"]

#: Methods that cast, and the dtype of their result.
FIXED_DTYPES: dict[str, str] = _TABLE["fixed_dtypes"]

#: Functions with a mode -> by mode the start of the names of its operators.
MODES: dict[str, dict[str, str]] = _TABLE["modes"]

#: The names under which programs import other libraries -> the library.
FOREIGN: dict[str, str] = _TABLE["foreign"]

_DTYPE_WORDS = "|".join(map(re.escape, [*DTYPES, *DTYPE_ALIASES]))
#: What is no operator, but often written for one: a pattern, what it is, and the next command.
OTHER_THINGS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (
        re.compile(
            row["pattern"].replace("{dtypes}", _DTYPE_WORDS),
            re.IGNORECASE if row.get("ignore_case") else 0,
        ),
        row["what"],
        row["next"],
    )
    for row in _TABLE["other_things"]
)


def key(text: str) -> str:
    """Return a text as names are compared: without case, spaces, hyphens and underscores."""
    return "".join(letter for letter in text.lower() if letter not in " -_")
