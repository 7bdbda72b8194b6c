"""Ask ``opcheck op`` about every public function that takes a tensor, and every module of torch.nn.

Usage: python -m scripts.api_coverage [RELEASE ...]

The names are those of ``torch.overrides.get_testing_overrides()`` and the classes of ``torch.nn``,
of the torch that is installed.  For each release (left out: 2.9, 2.13 and 2.15) the script prints how
many have each status, the names that are unknown, the names that mean no operator, and with their
reasons the names that are left out.  Exits with 1 if a name is unknown or nameless.
"""

import argparse
import fnmatch
import inspect
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
from torch import overrides

from opcheck.common.errors import UsageError
from opcheck.common.versions import Target
from opcheck.data.registrations import load
from opcheck.data.targets import target
from opcheck.lookup.answer_words import WITHOUT_OPERATORS
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.lookup.query import resolve

RELEASES = ("2.9", "2.13", "2.15")
#: By reason the patterns of names that no operator can answer for.
LEFT_OUT = msgspec.yaml.decode(
    Path(__file__).with_name("names_without_operators.yaml").read_bytes(), type=dict[str, tuple[str, ...]]
)
_OPEN = ("unknown", "nameless")


def names() -> Iterator[str]:
    """Yield the names of the functions and modules, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = {overrides.resolve_name(f) for f in overrides.get_testing_overrides()}
    yield from sorted(name for name in functions if name)
    for name, kind in sorted(vars(torch.nn).items()):
        if inspect.isclass(kind) and issubclass(kind, torch.nn.Module):
            yield f"torch.nn.{name}"


def why_left_out(name: str) -> str:
    """Return why no operator can answer for the name; empty where one must."""
    reasons = (why for why, texts in LEFT_OUT.items() if any(fnmatch.fnmatchcase(name, text) for text in texts))
    return WITHOUT_OPERATORS.get(name.removeprefix("torch."), (next(reasons, ""), ""))[0]


def status(name: str, aim: Target, lookup: OperatorLookup) -> str:
    """Return the status of a name on the target; ``nameless`` where the name means no operator."""
    line = str(aim.torch)
    try:
        query = resolve(name, lookup.lists)
    except UsageError:
        return "nameless"
    present = [op for op in query.overloads if lookup.operators.resolution(op, line).value is not None]
    if not present:
        return "not in this release"
    main = query.main if query.main in present else present[0]
    return str(lookup.verdict(main, aim, lookup.default_dtype(main, aim)).status)


def main() -> int:
    """Print the table and the lists; 1 if a name is unknown or nameless."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", default=RELEASES, help="such as 2.13")
    lookup = OperatorLookup(load())
    is_open = False
    for release in parser.parse_args().releases:
        aim = target(release, None, lookup.lists)
        states = {name: status(name, aim, lookup) for name in names()}
        excluded: dict[str, list[str]] = defaultdict(list)
        for name in [name for name, state in states.items() if state in _OPEN]:
            why = why_left_out(name)
            if why:
                excluded[why].append(name)
                del states[name]
        counts = Counter(states.values())
        first = ", ".join(f"{counts.pop(state, 0)} {state}" for state in _OPEN)
        rest = ", ".join(f"{number} {state}" for state, number in counts.most_common())
        print(f"torch {release}: {len(states)} names, {first}; {rest}")
        for state in (*_OPEN, "not in this release"):
            listed = [name for name, its_state in states.items() if its_state == state]
            is_open |= bool(listed) and state in _OPEN
            if listed:
                print(f"  {state}: {' '.join(listed)}")
        for why, left in excluded.items():
            print(f"  left out, {why} ({len(left)}): {' '.join(left)}")
    return int(is_open)


if __name__ == "__main__":
    sys.exit(main())
