"""``[tool.opcheck]``'s tables for the gate: models, targets, and what is ignored.  Plain data in, records out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from opcheck.capture.request import AUTOCAST, MODES, TRACERS
from opcheck.common.errors import UsageError
from opcheck.common.names import parse_dtype
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES
from opcheck.data.registrations import OpLists
from opcheck.data.target_ranges import NEWEST, pairs
from opcheck.judge.policy import FAIL_ON, Policy, limit
from opcheck.judge.rules import BY_ID
from opcheck.model.ignores import Entry
from opcheck.model.records import Record, Scalar
from opcheck.project.gate.tables import entries, of_kind, one_of, within
from opcheck.source.rules import BY_ID as SCAN_BY_ID

#: The keys of ``[tool.opcheck]`` that hold tables; all others are flags.
TABLES = ("models", "targets", "ignore")

_Number = int | str


class _Judged(Record, frozen=True, kw_only=True, rename="kebab"):
    """What a model and a target may both say about how they are judged; None: nothing."""

    fail_on: str | None = None
    max: dict[str, _Number] = {}
    strict: bool | None = None


class Model(_Judged, frozen=True, kw_only=True, rename="kebab"):
    """One of ``[[tool.opcheck.models]]``; the keys are the flags of ``opcheck audit``."""

    model: str
    #: what reports and baselines call it; empty: by ``model``.
    name: str = ""
    #: the names of the targets that it is for; none: all.
    targets: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    input_file: tuple[str, ...] = ()
    checkpoint: tuple[str, ...] = ()
    config: dict[str, Scalar | list[Any] | dict[str, Any]] = {}
    #: None: as the flag says
    dtype: str | None = None
    mode: str | None = None
    optimizer: str | None = None
    autocast: str | None = None
    tracer: str | None = None
    grad: bool | None = None
    #: the headline that it is known to have (Policy.expect)
    expect: str = ""


class Targets(_Judged, frozen=True, kw_only=True, rename="kebab"):
    """One of ``[[tool.opcheck.targets]]``: ranges, and how what they come to is judged."""

    name: str = ""
    torch: str | tuple[str, ...] = NEWEST
    macos: str | tuple[str, ...] = NEWEST
    fallback: bool = False
    #: what ``--environment`` chooses by
    environments: tuple[str, ...] = ()


class Planned(Record, frozen=True, kw_only=True):
    """One target, and the table that it is of."""

    target: Target
    of: Targets


class Settings(Record, frozen=True, kw_only=True):
    """All three tables."""

    models: tuple[Model, ...] = ()
    targets: tuple[Planned, ...] = ()
    ignores: tuple[Entry, ...] = ()
    #: what cannot be, as ``ranges.pairs`` says it
    left_out: tuple[str, ...] = ()


def settings(
    tables: Mapping[str, object],
    where: str,
    lists: OpLists,
    *,
    environment: str = "",
    targets: Targets | None = None,
) -> Settings:
    """The records of the tables.

    Args:
        tables: the content of ``[tool.opcheck]``; keys other than TABLES are not looked at.
        where: the file and the table, for errors.
        lists: the op lists whose releases are known.
        environment: leave out the targets that do not name it; empty: take all.
        targets: take these, and not those of the tables.

    Raises:
        UsageError: an unknown key, a value of another kind, an unknown rule, two models of one name.
        OpcheckError: a range that comes to nothing (ranges.py).
    """
    models = _models(tables.get("models", ()), where)
    named = of_kind(
        Targets, entries(tables.get("targets", ()), f"{where} targets"), "targets", where
    )
    for entry in named:
        _check_judged(entry, f"{where} targets {entry.name}".strip())
    one_of(
        (name for model in models for name in model.targets),
        {entry.name for entry in named if entry.name},
        f"{where} models: targets",
        "target",
    )
    if environment:
        known = {name for entry in named for name in entry.environments}
        one_of([environment], known, f"--environment {environment}", "environment")
        named = tuple(entry for entry in named if environment in entry.environments)
    chosen = (targets,) if targets else named or (Targets(),)
    planned, left_out = _planned(chosen, where, lists)
    return Settings(
        models=models,
        targets=planned,
        ignores=ignored(tables.get("ignore", ()), where),
        left_out=left_out,
    )


def ignored(content: object, where: str) -> tuple[Entry, ...]:
    """The entries of ``[[tool.opcheck.ignore]]``.

    Raises:
        UsageError: as ``settings`` says; an entry without a reason.
    """
    found = of_kind(Entry, entries(content, f"{where} ignore"), "ignore", where)
    for number, entry in enumerate(found, 1):
        place = f"{where} ignore, entry {number}"
        one_of([entry.rule], {**BY_ID, **SCAN_BY_ID}, place, "rule")
        if not entry.reason.strip():
            raise UsageError(
                f"{entry.rule} is ignored without a reason",
                context=place,
                hint='write reason = "..."',
            )
    return found


def policy(model: Model, planned: Planned, base: Policy, over: Policy | None = None) -> Policy:
    """How a model on a target is judged: the base, then its target's table, then its own; ``over`` wins."""
    found = base
    for table in (planned.of, model):
        found = msgspec.structs.replace(
            found,
            fail_on=found.fail_on if table.fail_on is None else table.fail_on,
            strict=found.strict if table.strict is None else table.strict,
            limits={**found.limits, **_limits(table)},
        )
    return msgspec.structs.replace(
        found,
        fail_on=over.fail_on if over and over.fail_on else found.fail_on,
        limits={**found.limits, **(over.limits if over else {})},
        expect=model.expect,
    )


def of_all(model: Model, planned: Iterable[Planned]) -> tuple[Planned, ...]:
    """Those of the targets that the model is for."""
    return tuple(one for one in planned if not model.targets or one.of.name in model.targets)


def _models(content: object, where: str) -> tuple[Model, ...]:
    place = f"{where} models"
    found = entries(content, place, short="model", named=True)
    models = tuple(
        msgspec.structs.replace(model, name=model.name or model.model)
        for model in of_kind(Model, found, "models", where)
    )
    names = [model.name for model in models]
    for model in models:
        if names.count(model.name) > 1:
            raise UsageError(
                f"two models are called {model.name!r}",
                context=place,
                hint='give each a name of its own: name = "..."',
            )
        _check(model, f"{place}, {model.name}")
    return models


def _check(model: Model, place: str) -> None:
    """The values that a table cannot be asked for by its type.

    Raises:
        UsageError: one that the flag of that name would refuse.
    """
    _check_judged(model, place)
    for key, value, known in (
        ("expect", model.expect, HEADLINES),
        ("mode", model.mode, MODES),
        ("tracer", model.tracer, TRACERS),
        ("autocast", model.autocast, AUTOCAST),
    ):
        if value:
            one_of([value], known, f"{place}: {key}", key)
    if model.dtype:
        within(f"{place}: dtype", parse_dtype, model.dtype)


def _check_judged(table: _Judged, place: str) -> None:
    if table.fail_on is not None:
        one_of([table.fail_on], FAIL_ON, f"{place}: fail-on", "level")
    within(f"{place}: max", _limits, table)


def _limits(table: _Judged) -> dict[str, int]:
    return dict(limit(f"{name}={number}") for name, number in table.max.items())


def _planned(
    tables: Iterable[Targets], where: str, lists: OpLists
) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
    """Each target once, by the first table that comes to it."""
    plans: dict[Target, Planned] = {}
    left_out: dict[str, None] = {}
    for table in tables:
        place = f"{where} targets {table.name}".strip()

        def of_table(entry: Targets) -> Any:
            return pairs(entry.torch, entry.macos, lists=lists, cpu_fallback=entry.fallback)

        come_to = within(place, of_table, table)
        left_out.update(dict.fromkeys(come_to.left_out))
        for target in come_to.targets:
            plans.setdefault(target, Planned(target=target, of=table))
    return tuple(plans.values()), tuple(left_out)
