"""The results of a run of the gate: a cell for each model on each target."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from opcheck.capture.request import CaptureOptions
from opcheck.cli.config import entries, of_kind, one_of, prefix_errors, read_ignores
from opcheck.common.documents import brief
from opcheck.common.errors import UsageError
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES, Headline
from opcheck.data.registrations import OpLists
from opcheck.data.targets import LATEST, NEWEST, pairs
from opcheck.judge.policy import Policy
from opcheck.model.ignores import IgnoreEntry
from opcheck.model.options import PATHS, check_inside, options_of
from opcheck.model.records import Record, Report

SCHEMA = "opcheck-gate/1"


class Failed(Record, frozen=True, kw_only=True):
    """Why there is no report: the three lines of an error."""

    message: str
    context: str = ""
    hint: str = ""


class Known(Record, frozen=True, kw_only=True):
    """An entry of a baseline: a finding at one place of one model."""

    fingerprint: str
    rule: str
    op: str = ""
    #: file, function and module, without the number of the line; the line itself
    where: str = ""
    line: str = ""
    #: the worst on these targets; empty in a file of an earlier opcheck
    severity: str = ""
    #: the targets where it is known, as their ``str``
    targets: tuple[str, ...] = ()


class GateCell(Record, frozen=True, kw_only=True):
    """One model on one target."""

    #: as the configuration calls it
    model: str
    target: str
    #: ``transformers==5.8.1``: versions of the libraries that the target names
    libraries: tuple[str, ...]
    #: of the report; without a report the result is unknown
    headline: Headline
    #: the judgement: its exit code, why it is not 0, and the fingerprints of the findings against it
    code: int
    reasons: tuple[str, ...]
    against: tuple[str, ...]
    #: fingerprints of known findings, and the baseline's entries that are no longer found
    known: tuple[str, ...]
    fixed: tuple[Known, ...]
    failed: Failed | None
    #: with its ignored findings marked; None: there is none.
    report: Report | None


class GateReport(Record, frozen=True, kw_only=True):
    """All cells of a run, model by model: what ``opcheck gate -f json`` writes."""

    schema: str = SCHEMA
    tool: str
    #: digest of the op lists
    op_lists: str
    #: 1 if a cell fails, else 3 if a result is unknown, else 0
    exit_code: int
    models: tuple[str, ...]
    targets: tuple[str, ...]
    #: whether there is a baseline: then only what is new speaks against a model.
    baseline: bool
    #: about the configuration: ignores that silence nothing or are over, targets that cannot be
    notes: tuple[str, ...]
    #: models that were not audited any more, because somebody interrupted the run
    left: tuple[str, ...]
    cells: tuple[GateCell, ...]


_Kind = TypeVar("_Kind", bound=Record)


class _OptionTable(Record, frozen=True, kw_only=True):
    """A table with options among its keys; options that it does not set are UNSET."""

    def pick_options(self, record: type[msgspec.Struct]) -> dict[str, Any]:
        """Return the options of a record that the table sets, as they are used, by field."""
        return {
            source.field: source.checked(value, source.name)
            for source in options_of(record)
            if (value := getattr(self, source.field, msgspec.UNSET)) is not msgspec.UNSET
        }


class GateModel(_OptionTable, frozen=True, kw_only=True):
    """An entry of ``[[tool.opcheck.models]]``; its other keys are the flags of ``opcheck audit``."""

    model: str
    #: what reports and baselines call it; empty: by ``model``.
    name: str = ""
    #: the names of the targets that it is for; none: all.
    targets: tuple[str, ...] = ()
    #: the headline that it is known to have (Policy.expect)
    expect: str = ""


class Targets(_OptionTable, frozen=True, kw_only=True):
    """An entry of ``[[tool.opcheck.targets]]``: ranges of targets, and how to judge them."""

    name: str = ""
    torch: str | tuple[str, ...] = NEWEST
    macos: str | tuple[str, ...] = NEWEST
    fallback: bool = False
    #: what ``--environment`` chooses by
    environments: tuple[str, ...] = ()


#: Libraries with versions in a table, as of torch: ``["5.8", "5.9"]``; each version has an environment of its own.
LIBRARIES = ("accelerate", "diffusers", "peft", "timm", "torchaudio", "torchvision", "transformers")


def table(kind: type[_Kind], *records: type[msgspec.Struct], ranges: Iterable[str] = ()) -> type[_Kind]:
    """Make a kind of table that also takes the options of these records, under the names of their flags.

    Options that only ``opcheck audit`` has are left out; ``ranges`` are keys whose values are versions.
    """
    names: dict[str, str] = {}
    fields: list[tuple[str, Any, Any]] = [(name, str | tuple[str, ...], ()) for name in ranges]
    for source in (source for record in records for source in options_of(record)):
        if getattr(source.option, "scope", "") != "audit":
            # A choice is checked after the type, where the error suggests the nearest.
            taken = source.option.table or (str if source.option.choices else source.type)
            names[source.field] = source.name
            fields.append((source.field, taken | msgspec.UnsetType, msgspec.UNSET))
    made = msgspec.defstruct(kind.__name__, fields, bases=(kind,), rename=names.get, frozen=True, kw_only=True)
    assert issubclass(made, kind)
    return made


ModelTable = table(GateModel, CaptureOptions, Policy)
TargetsTable = table(Targets, Policy, ranges=LIBRARIES)


class Planned(Record, frozen=True, kw_only=True):
    """A target, the versions of libraries that it is audited with, and the table that lists it."""

    target: Target
    table: Targets
    #: requirements; none: what is installed here
    libraries: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return the target with the libraries: ``torch 2.13, macOS 15.0, transformers 5.8``."""
        return ", ".join((str(self.target), *map(library_text, self.libraries)))


def library_text(requirement: str) -> str:
    """Return ``transformers 5.8`` for ``transformers==5.8.*``, and ``transformers>=5.8`` as it is."""
    return requirement.replace("==", " ", 1).removesuffix(".*")


def _requirements(table: Targets, place: str) -> Iterator[tuple[str, ...]]:
    """Yield the combinations of the libraries' versions that a table lists; a single empty one without libraries.

    Raises:
        UsageError: a text that is no version.
    """
    axes = []
    for name in LIBRARIES:
        texts = getattr(table, name, ())
        texts = (texts,) if isinstance(texts, str) else texts
        if texts:
            axes.append([_requirement(name, text.strip(), place) for text in texts])
    yield from map(tuple, product(*axes))


def _requirement(name: str, text: str, place: str) -> str:
    """Return the requirement for a version: ``5.8`` means its newest patch release."""
    if text in LATEST:
        return name
    if text[:1].isdigit():
        text = f"=={text}.*" if text.count(".") < 2 else f"=={text}"
    try:
        return f"{name}{SpecifierSet(text)}"
    except InvalidSpecifier as error:
        hint = f'write {name} = ["5.8", "5.9"], "newest" or ">=5.8,<5.10"'
        raise UsageError(f"not a version of {name}: {brief(text)}", context=f"{place}: {name}", hint=hint) from error


class GateSettings(Record, frozen=True, kw_only=True):
    """The records of all three tables."""

    models: tuple[GateModel, ...] = ()
    targets: tuple[Planned, ...] = ()
    ignores: tuple[IgnoreEntry, ...] = ()
    #: impossible pairs, as ``targets.pairs`` describes them
    left_out: tuple[str, ...] = ()


def settings(
    tables: Mapping[str, object], where: str, lists: OpLists, *, environment: str = "", targets: Targets | None = None
) -> GateSettings:
    """Convert the tables to records.

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
    place = f"{where} targets"
    listed = of_kind(TargetsTable, entries(tables.get("targets", ()), place), "targets", where)
    for entry in listed:
        _check(entry, f"{place} {entry.name}".strip(), Policy)
    names = {entry.name for entry in listed if entry.name}
    wanted = [name for model in models for name in model.targets]
    one_of(wanted, names, f"{where} models: targets", "target")
    if environment:
        known = {name for entry in listed for name in entry.environments}
        one_of([environment], known, f"--environment {environment}", "environment")
        listed = tuple(entry for entry in listed if environment in entry.environments)
    chosen = (targets,) if targets else listed or (Targets(),)
    planned, left_out = _plan_targets(chosen, where, lists)
    ignores = read_ignores(tables.get("ignore", ()), where)
    return GateSettings(models=models, targets=planned, ignores=ignores, left_out=left_out)


def policy(model: GateModel, planned: Planned, base: Policy, over: Policy) -> Policy:
    """Return the policy for a model on a target: the base, then the target's table, then the model's; ``over`` wins."""
    combined = base
    for entry in (planned.table, model):
        given = entry.pick_options(Policy)
        limits = {**combined.limits, **given.pop("limits", {})}
        combined = replace(combined, limits=limits, **given)
    fail_on, limits = over.fail_on or combined.fail_on, {**combined.limits, **over.limits}
    return replace(combined, fail_on=fail_on, limits=limits, expect=model.expect)


def select_settings(
    plan: GateSettings, names: Sequence[str], where: str, *, on_every_target: bool = False
) -> GateSettings:
    """Select the part of the settings that a run needs.

    Args:
        plan: all that is configured.
        names: models by their configured names, or as ``opcheck audit`` takes them; none: all of them.
        where: the place of the names, for errors.
        on_every_target: whatever targets the tables of the models name.

    Raises:
        UsageError: an unknown name, or no model is left.
    """
    models = plan.models
    if on_every_target:
        models = tuple(replace(model, targets=()) for model in models)
    if names:
        by_name = {model.name: model for model in models}
        models = ()
        for name in dict.fromkeys(names):
            if name not in by_name and not (":" in name or name.endswith((".pt2", ".py"))):
                near = difflib.get_close_matches(name, by_name, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(by_name) or 'none'}"
                raise UsageError(f"no model is called {name!r}", context="opcheck gate", hint=hint)
            models += (by_name.get(name) or GateModel(name=name, model=name),)
    # A model whose targets are all of another environment has no part in this run.
    taking_part = tuple(model for model in models if targets_of(model, plan.targets))
    if not taking_part:
        problem = "no model has a target in this run" if models else "no model is configured"
        hint = "opcheck init writes the table; or name a model here: opcheck gate file.py:attribute"
        raise UsageError(problem, context=where, hint=hint)
    return replace(plan, models=taking_part)


def targets_of(model: GateModel, planned: Iterable[Planned]) -> tuple[Planned, ...]:
    """Return the planned targets that apply to the model."""
    return tuple(each for each in planned if not model.targets or each.table.name in model.targets)


def _models(content: object, where: str) -> tuple[GateModel, ...]:
    place = f"{where} models"
    tables = entries(content, place, short="model", named=True)
    listed = of_kind(ModelTable, tables, "models", where)
    models = tuple(replace(model, name=model.name or model.model) for model in listed)
    names = [model.name for model in models]
    for model in models:
        if names.count(model.name) > 1:
            raise UsageError(
                f"two models are called {model.name!r}", context=place, hint='give each a name of its own: name = "..."'
            )
        own = f"{place}, {model.name}"
        with prefix_errors(f"{own}: model"):
            check_inside(model.model, Path.cwd())
        _check(model, own, CaptureOptions, Policy)
        if model.expect:
            one_of([model.expect], HEADLINES, f"{own}: expect", "expect")
    return models


def _check(entry: _OptionTable, place: str, *records: type[msgspec.Struct]) -> None:
    """Refuse the values that the flag of that name refuses.

    Raises:
        UsageError: a value is refused.
    """
    for record in records:
        for source in options_of(record):
            value = getattr(entry, source.field, msgspec.UNSET)
            if value is msgspec.UNSET:
                continue
            if source.option.choices:
                what = "level" if source.name == "fail-on" else source.name
                one_of([value], source.option.choices, f"{place}: {source.name}", what)
            with prefix_errors(f"{place}: {source.name}"):
                source.checked(value, "")
                if source.option.action in PATHS:
                    check_inside(value, Path.cwd())


def _plan_targets(tables: Iterable[Targets], where: str, lists: OpLists) -> tuple[tuple[Planned, ...], tuple[str, ...]]:
    """Return each target once, by the first table that lists it."""
    plans: dict[tuple[Target, tuple[str, ...]], Planned] = {}
    left_out: dict[str, None] = {}
    for table in tables:
        with prefix_errors(f"{where} targets {table.name}".strip()):
            possible = pairs(table.torch, table.macos, lists=lists, cpu_fallback=table.fallback)
        left_out.update(dict.fromkeys(possible.left_out))
        for libraries in _requirements(table, f"{where} targets {table.name}".strip()):
            for target in possible.targets:
                planned = Planned(target=target, table=table, libraries=libraries)
                plans.setdefault((target, libraries), planned)
    return tuple(plans.values()), tuple(left_out)
