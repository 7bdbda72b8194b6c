"""Registers what the simulation has of single operators: a file for each area, a registration for each operator."""

import functools
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.common.versions import Span, Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import operator
from opcheck.simulator.dispatch.operators.operator import Branch, Operator

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)


def _make_operator(name: str, facts: dict[str, Any]) -> Operator:
    """Return an overload of its entry in ``operators.yaml`` and its functions."""
    functions = operator.FUNCTIONS.get(name, {})
    fields = {**facts, **functions}
    text = fields.pop("text", None)
    if texts := fields.pop("texts", [{}] if text else ()):
        fields["device_texts"] = tuple(
            operator.DeviceText(operator.fill_places(row["text"]) if "text" in row else text, _read_span(row))
            for row in texts
        )
    if like := fields.pop("like", None):
        fields["metadata"] = operator.make_like(*like)
    if "branch" in fields:
        branch = facts["branch"]
        function = functions.get("branch") or operator.follow_calls(operator.overload_named(name))
        fields["branch"] = Branch(function, branch["reason"], _read_span(branch))
    if "role" in facts:
        fields["role"] = operator.Role[facts["role"]]
    for key in fields.keys() & {"keeps_values_of", "results_on_cpu"}:
        fields[key] = frozenset(fields[key])
    if "skips_empty" in fields:
        fields["skips_empty"] = Version.parse(fields["skips_empty"])
    if isinstance(fields.get("body"), list):
        fields["body"] = tuple(fields["body"])
    return Operator(**fields)


def _read_span(row: dict[str, str]) -> Span:
    return Span(**{end: Version.parse(row[end]) for end in row.keys() & {"since", "until"}})


_ENTRIES = load_shipped(Path(__file__).with_name("operators.yaml"))
_FACTS = {name: entry for entry in _ENTRIES for name in entry.pop("names")}
OPERATORS = {name: _make_operator(name, _FACTS.get(name, {})) for name in operator.FUNCTIONS | _FACTS}
#: what is known of any other
PLAIN = Operator()

BRANCHES: dict[str, Branch] = {name: each.branch for name, each in OPERATORS.items() if each.branch is not None}
PYTHON_KERNELS: dict[str, Callable[..., Any]] = {
    name: each.python_kernel for name, each in OPERATORS.items() if each.python_kernel is not None
}


class LegacyBody(NamedTuple):
    """What a composite called in earlier releases, as their macOS wheels show."""

    releases: Span
    calls: tuple[str, ...]


LEGACY_BODIES = {
    name: LegacyBody(_read_span(row), tuple(row["calls"]))
    for name, row in load_shipped(Path(__file__).with_name("legacy_bodies.yaml")).items()
}


def branches_of(target: Target, context: DispatchContext) -> dict[str, Callable[..., Any]]:
    """Return the branches that apply to a target, by operator overload."""
    return {
        name: functools.partial(branch.function, context)
        for name, branch in BRANCHES.items()
        if target.torch in branch.releases
    }


def legacy_body(target: Target, name: str) -> tuple[str, ...] | None:
    """Return the operators that the composite's body called in the target's release; None if they are today's."""
    releases, calls = LEGACY_BODIES[name]
    return calls if target.torch in releases else None
