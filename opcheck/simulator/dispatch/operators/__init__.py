"""Registers what the simulation has of single operators: a file for each area, a registration for each operator."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from opcheck.common.versions import Span, Target
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import Branch, Operator

#: by the name of the overload, of the modules here that have a tuple OPERATORS: one an area
OPERATORS: dict[str, Operator] = {
    name: operator
    for module in pkgutil.iter_modules(__path__, f"{__name__}.")
    for operator in getattr(import_module(module.name), "OPERATORS", ())
    for name in operator.names
}
#: what is known of any other
PLAIN = Operator(())

BRANCHES: dict[str, Branch] = {
    name: operator.branch for name, operator in OPERATORS.items() if operator.branch is not None
}
PYTHON_KERNELS: dict[str, Callable[..., Any]] = {
    name: operator.python_kernel
    for name, operator in OPERATORS.items()
    if operator.python_kernel is not None
}


class LegacyBody(msgspec.Struct, frozen=True):
    """What a composite called in earlier releases, as their macOS wheels show."""

    until: str
    calls: tuple[str, ...]
    since: str = "1.13"

    @property
    def releases(self) -> Span:
        """The releases."""
        return Span.of(self.since, self.until)


LEGACY_BODIES: dict[str, LegacyBody] = msgspec.convert(
    load_shipped(Path(__file__).with_name("legacy_bodies.yaml")), dict[str, LegacyBody]
)


def branches_of(target: Target, context: DispatchContext) -> dict[str, Callable[..., Any]]:
    """Return the branches that apply to a target, by operator overload."""
    return {
        name: functools.partial(branch.function, context)
        for name, branch in BRANCHES.items()
        if target.torch in branch.releases
    }


def legacy_body(target: Target, name: str) -> tuple[str, ...] | None:
    """Return the operators that the composite's body called in the target's release; None if they are today's."""
    body = LEGACY_BODIES[name]
    return body.calls if target.torch in body.releases else None
