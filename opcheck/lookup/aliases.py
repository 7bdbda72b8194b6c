"""The names beside its own by which people look for an operator: of Python, of composites that call it, usual words."""

from collections.abc import Iterable, Iterator, Mapping

from opcheck.data import composites
from opcheck.lookup.answer_words import WORDS, key


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
    for name, entered in composites.apis().items():
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
    called = {_base(op) for op in (*body.always, *body.sometimes)} if body else set()
    return tuple(called) if len(called) == 1 else ()


def _base(overload: str) -> str:
    return overload.partition(".")[0]
