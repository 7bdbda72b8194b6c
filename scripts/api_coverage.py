"""Ask ``opcheck op`` about every public function that takes a tensor, and every module of torch.nn.

Usage: python -m scripts.api_coverage [RELEASE ...]

The names are those of ``torch.overrides.get_testing_overrides()`` and the classes of ``torch.nn``,
of the torch that is installed.  For each release (left out: 2.9, 2.13 and 2.15) the script prints how
many have each status, the names that are unknown, the names that mean no operator, and with their
reasons the names that are left out.  Exits with 1 if a name is unknown or nameless.
"""

from __future__ import annotations

import argparse
import fnmatch
import inspect
import sys
import warnings
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import torch
from torch import overrides

from opcheck.common.errors import UsageError
from opcheck.data.registrations import load
from opcheck.data.targets import target
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.lookup.query import resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opcheck.common.versions import Target

RELEASES = ("2.9", "2.13", "2.15")

#: Names that no operator can answer for, and why; the first pattern that fits counts.
LEFT_OUT = (
    ("*.__get__", "an attribute: Python reads metadata, no operator runs"),
    ("torch.Tensor.__*__", "Python's own protocol, without an operator of its own"),
)


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
    return next((why for text, why in LEFT_OUT if fnmatch.fnmatchcase(name, text)), "")


def statuses(asked: Iterable[str], aim: Target, lookup: OperatorLookup) -> dict[str, str]:
    """Return the status of each name on the target; ``nameless`` where the name means no operator."""
    lists, line = lookup.lists, str(aim.torch)
    result = {}
    for name in asked:
        try:
            query = resolve(name, lists)
        except UsageError:
            result[name] = "nameless"
            continue
        present = [op for op in query.overloads if op in lists.operators(line)]
        if query.overloads and not present:
            result[name] = "not in this release"
            continue
        main = query.main if query.main in present else present[0]
        result[name] = str(lookup.verdict(main, aim, lookup.default_dtype(main, aim)).status)
    return result


def main() -> int:
    """Print the table and the lists; 1 if a name is unknown or nameless."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", default=RELEASES, help="such as 2.13")
    lookup = OperatorLookup(load())
    excluded: dict[str, list[str]] = defaultdict(list)
    asked = []
    for name in names():
        why = why_left_out(name)
        excluded[why].append(name) if why else asked.append(name)
    is_open = False
    for release in parser.parse_args().releases:
        known = statuses(asked, target(release, None, lookup.lists), lookup)
        counts = Counter(known.values())
        unknown, nameless = counts.pop("unknown", 0), counts.pop("nameless", 0)
        rest = ", ".join(f"{number} {status}" for status, number in counts.most_common())
        print(
            f"torch {release}: {len(known)} names, {unknown} unknown, {nameless} nameless; {rest}"
        )
        for status in ("unknown", "nameless"):
            listed = [name for name, state in known.items() if state == status]
            if listed:
                is_open = True
                print(f"  {status}: {' '.join(listed)}")
    for why, left in excluded.items():
        print(f"left out, {why} ({len(left)}): {' '.join(left)}")
    return int(is_open)


if __name__ == "__main__":
    sys.exit(main())
