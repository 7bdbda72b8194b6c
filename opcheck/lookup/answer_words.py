"""The words by which people call operators, and the names that are no operators (words.yaml)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opcheck.common.names import DTYPE_ALIASES, DTYPES
from opcheck.common.yaml_text import load_shipped
from opcheck.data import composites

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
REMOVED: dict[str, tuple[str, str]] = {op: (release, instead) for op, (release, instead) in _TABLE["removed"].items()}

#: Functions and methods that no release of the lists has, as people write them -> what to write instead.
REMOVED_FUNCTIONS: dict[str, str] = {
    f"{place}.{name}": instead
    for name, instead in _TABLE["removed_functions"].items()
    for place in ("torch", "Tensor", "torch.Tensor")
}

#: Other spellings of the same places, applied in turn: a pattern at the beginning of a name, and what it becomes.
SPELLINGS: list[tuple[str, str]] = _TABLE["spellings"]
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


def _compile(row: dict[str, Any]) -> re.Pattern[str]:
    flags = re.IGNORECASE if row.get("ignore_case") else 0
    return re.compile(row["pattern"].replace("{dtypes}", _DTYPE_WORDS), flags)


#: What is no operator, but often written for one: a pattern, what it is, and the next command.
OTHER_THINGS = tuple((_compile(row), str(row["what"]), str(row["next"])) for row in _TABLE["other_things"])


def key(text: str) -> str:
    """Return a text as names are compared: without case, spaces, hyphens and underscores."""
    return "".join(letter for letter in text.lower() if letter not in " -_")


def aliases(operators: Iterable[str], line: str) -> Mapping[str, tuple[str, ...]]:
    """Return by operator, without overloads, the names of it alone.

    A name that the operator's own name holds is left out: a search finds it.

    Args:
        operators: overloads, or operators without them.
        line: the release line whose bodies tell what a composite or a Python function calls.

    Raises:
        OpListError: a data file is missing or damaged.
    """
    overloads = sorted(set(operators))
    names: dict[str, dict[str, None]] = {_base(op): {} for op in overloads}
    for name, op in _calling(overloads, line):
        if op in names:
            names[op].setdefault(name)
    for word, meant in WORDS.items():
        for op, known in names.items():
            if meant in {op, op.partition("::")[2]} or meant in known:
                known.setdefault(word)
    return {op: shown for op, known in names.items() if (shown := tuple(_unlike(known, op)))}


def _unlike(names: Iterable[str], operator: str) -> Iterator[str]:
    """Yield the names that the operator's own does not hold: of ``nn.functional.gelu`` the last part counts."""
    for name in names:
        written = key(name).replace(".", "")
        if written not in key(operator) and key(name.rpartition(".")[2]) not in key(operator):
            yield name


def _calling(overloads: Iterable[str], line: str) -> Iterator[tuple[str, str]]:
    """Yield public names of Python and of composites, each with the one operator that it enters or calls."""
    for name, entered in composites.SAMPLED.load().apis.items():
        bases = {_base(op) for op in entered}
        if len(bases) == 1:
            bodies = (_only(composites.body(each, line)) for each in entered)
            yield from ((name, op) for called in (bases, *bodies) for op in called)
    for name in sorted(composites.python_callers()):
        yield from ((name, op) for op in _only(composites.python_body(name, line)))
    for overload in overloads:
        name = _base(overload).partition("::")[2]
        if not (overload.endswith("out") or name.startswith("_") or name.endswith("_")):
            yield from ((name, op) for op in _only(composites.body(overload, line)))


def _only(body: composites.CompositeBody | None) -> tuple[str, ...]:
    """Return the one operator that a body calls in every case; empty: it calls none or several."""
    called = set(map(_base, body.both)) if body else set()
    return tuple(called) if len(called) == 1 else ()


def _base(overload: str) -> str:
    return overload.partition(".")[0]
