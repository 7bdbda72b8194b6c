"""The results as a document and as data: counts by library, what stops models, each failure with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import yaml
from tabulate import tabulate

from opcheck.files import write_text
from opcheck.pipeline import HEADLINES
from opcheck.versions import Target
from scripts.sweep.attribution import OWNERS, attribute
from scripts.sweep.records import Result

LIBRARIES = ("transformers", "timm", "torchvision", "diffusers")
#: operators that are listed
MOST = 25

#: outcome of a call -> what it means for the model; in the order of the document.
_STOPS = {
    "unsupported": "fails, whatever is set",
    "fallback_env": "needs PYTORCH_ENABLE_MPS_FALLBACK=1",
    "unknown": "not in the lists",
    "fallback_always": "always on the CPU",
    "fallback_internal": "partly on the CPU inside a kernel",
}


_HOW = (
    "What opcheck says of each on torch {target.torch}, macOS {target.macos}, inference, in a small configuration "
    "of its own family: fewer layers and experts, the widths as they are, inputs as the configuration describes "
    "them. Nothing was observed on a Mac. Written by `python -m scripts.sweep_zoo`; each model's result is in "
    "[zoo.yaml](zoo.yaml)."
)


_WHOSE = (
    "*The model's*: it does not build from its own default configuration without opcheck either, needs a package "
    "that is not installed, or refuses to run, whatever it is given. *PyTorch's*: an operator has no rule for "
    "shapes without values. *Ours*: everything else, so also a model for which no rule here makes inputs that it "
    "takes; the same model was run without opcheck to tell (`without_opcheck` in zoo.yaml)."
)
_BROKE_OFF = "Of those that fail, {} broke off after the operator that fails."


def write(results: Iterable[Result], target: Target, folder: Path) -> None:
    """``zoo.md`` and ``zoo.yaml``."""
    ordered = sorted(results, key=lambda one: (LIBRARIES.index(one.library), one.spec))
    write_text(folder / "zoo.md", document(ordered, target))
    write_text(folder / "zoo.yaml", data(ordered, target))


def document(results: Sequence[Result], target: Target) -> str:
    """The table for people."""
    audited = [one for one in results if one.audited]
    failed = [one for one in results if not one.audited]
    owners = Counter(attribute(one).owner for one in failed)
    parts = [
        "# Every model class of the libraries",
        _HOW.format(target=target),
        f"**{_summary(audited, results, owners)}**",
        "## Verdicts",
        _table(_verdicts(results)),
        _BROKE_OFF.format(sum(not one.complete for one in audited)),
        "## Failures of the audit",
        _WHOSE,
        _table(_owners(results)),
        _table(_failures(failed)) if failed else "None.",
        "## What stops most models",
        _table(_stops(results)),
    ]
    return "\n\n".join(parts) + "\n"


def data(results: Sequence[Result], target: Target) -> str:
    """The results for programs."""
    content = {
        "target": {"torch": str(target.torch), "macos": str(target.macos)},
        "packages": {name: version(name) for name in ("torch", *LIBRARIES)},
        "models": {one.spec: dict(_entry(one)) for one in results},
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=10_000)


def _summary(audited: Sequence[Result], results: Sequence[Result], owners: Counter[str]) -> str:
    counts = ", ".join(
        f"{owners[owner]:,} ({_share(owners[owner], results)}) {owner}" for owner in OWNERS
    )
    return (
        f"{len(audited):,} of {len(results):,} model classes ({_share(len(audited), results)}) were audited with a "
        f"verdict; of the failures {counts}."
    )


def _share(count: int, results: Sequence[Result]) -> str:
    return f"{count / max(len(results), 1):.1%}"


def _table(rows: Iterable[dict[str, object]]) -> str:
    return tabulate(
        list(rows), headers="keys", tablefmt="github", intfmt=",", disable_numparse=False
    )


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    for library in LIBRARIES:
        yield f"{library} {version(library)}", [one for one in results if one.library == library]
    yield "all", list(results)


def _verdicts(results: Sequence[Result]) -> Iterator[dict[str, object]]:
    for name, those in _rows(results):
        verdicts = Counter(one.headline for one in those if one.audited)
        yield {
            "library": name,
            "classes": len(those),
            "families": len({one.family for one in those}),
            "built": sum(one.stage != "load" for one in those),
            "audited": sum(one.audited for one in those),
            **{headline: verdicts[headline] for headline in reversed(HEADLINES)},
        }


def _owners(results: Sequence[Result]) -> Iterator[dict[str, object]]:
    for name, those in _rows(results):
        failed = [one for one in those if not one.audited]
        owners = Counter(attribute(one).owner for one in failed)
        stages = Counter(one.stage for one in failed)
        yield {
            "library": name,
            "no verdict": len(failed),
            **{owner: owners[owner] for owner in OWNERS},
            "while building": stages["load"],
            "no inputs": stages["inputs"],
            "while running": stages["run"] + stages["judge"],
        }


def _failures(failed: Sequence[Result]) -> Iterator[dict[str, object]]:
    for one in sorted(failed, key=lambda one: (OWNERS.index(attribute(one).owner), one.spec)):
        attribution = attribute(one)
        yield {
            "model": one.spec,
            "whose": attribution.owner,
            "why": attribution.why,
            "what was said": _cell(one.message),
        }


def _cell(text: str, limit: int = 160) -> str:
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _stops(results: Sequence[Result]) -> Iterator[dict[str, object]]:
    models: Counter[tuple[str, str]] = Counter()
    families: dict[tuple[str, str], set[str]] = {}
    for one in results:
        for outcome, names in one.overloads.items():
            for name in names:
                models[outcome, name] += 1
                families.setdefault((outcome, name), set()).add(one.family)
    order = list(_STOPS)
    ranked = sorted(
        models.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1])
    )
    for outcome in order:
        for (_, name), count in [item for item in ranked if item[0][0] == outcome][:MOST]:
            yield {
                "operator": f"`{name}`",
                "what happens": _STOPS[outcome],
                "models": count,
                "families": len(families[outcome, name]),
            }


def _entry(one: Result) -> Iterator[tuple[str, object]]:
    yield "family", one.family
    if one.config:
        yield "config", one.config
    if one.headline:
        yield "headline", one.headline
        yield "complete", one.complete
        yield "calls", one.calls
        yield "operators", one.operators
    if one.overloads:
        yield "overloads", one.overloads
    if not one.audited:
        attribution = attribute(one)
        yield "stage", one.stage
        yield "problem", one.problem
        yield "message", one.message
        yield "without_opcheck", one.plain
        yield "owner", attribution.owner
        yield "why", attribution.why
    elif one.problem:
        yield "broke_off", one.message
