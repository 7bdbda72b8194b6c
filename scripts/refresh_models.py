"""Audit the public models whose configurations ship with opcheck on eight targets, and write ``reports/models.md``.

    python scripts/refresh_models.py [--again] [MODEL ...]

Results are kept in ``build/models.jsonl``, one line a model, so that an interrupted run goes on where it was.
Layers beyond the first few of a stack of equal ones are left out: they make the same calls.  The page has how many were
run.  ``--again`` audits the named models (all, without names), also those that are kept.
"""

import argparse
import functools
import importlib
import importlib.metadata
import json
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch

from opcheck.capture.child.shared import captures
from opcheck.capture.repository import Repository, recipes
from opcheck.capture.request import CaptureOptions, CaptureRequest, find_source, request_of
from opcheck.common.errors import OpcheckError
from opcheck.common.text import one_line, plural
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES, FallbackKind, Status
from opcheck.data import targets
from opcheck.data.registrations import load
from opcheck.features.sweep import server
from opcheck.judge.target_summary import TargetSummary, summaries
from opcheck.model.records import Record
from opcheck.worker.protocol import silent
from opcheck.worker.worker import WorkerError, run_forked
from scripts.pages import ROOT, narrow_table, page_text

RESULTS = ROOT / "build" / "models.jsonl"
PAGE = ROOT / "reports" / "models.md"

TORCH = ("2.9", "2.13", "2.15")
MACOS = ("14", "15", "26")
LIBRARIES = ("transformers", "diffusers", "timm")
#: Columns of a row of the page.
WIDTH = 100
#: Seconds for one model on all targets.
LIMIT = 420.0
#: Layers that are run of a stack of equal ones: models of two kinds of layers alternate within six.
LAYERS = 6
#: Settings that count equal layers.
COUNTS = frozenset(
    {"decoder_layers", "depth", "encoder_layers", "n_layer", "n_layers", "num_decoder_layers"}
    | {"num_hidden_layers", "num_layers", "num_single_layers"}
)
#: Settings that name single layers: a model that has one is run whole.
NAMED = frozenset(
    {"attention_types", "backbone_out_indices", "fullatt_block_indexes", "out_indices"} | {"vision_feature_layer"}
)


class Result(Record, frozen=True, kw_only=True):
    """The outcome of one model."""

    model: str
    task: str
    called: tuple[str, ...] = ()
    parameters: int = 0
    calls: int = 0
    #: ``6 of 32``; empty: all
    layers: str = ""
    cells: tuple[TargetSummary, ...] = ()
    #: what opcheck could not follow, or why there is no trace
    problems: tuple[str, ...] = ()
    seconds: float = 0.0


def shortened(repository: Repository) -> tuple[Repository, str]:
    """Leave out layers beyond the first few; return how many are run of how many."""
    most: list[tuple[int, int]] = []

    def cut(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        whole = not NAMED.isdisjoint(value)
        made = {}
        for key, item in value.items():
            if key in COUNTS and isinstance(item, int) and item > LAYERS and not whole:
                most.append((item, LAYERS))
                made[key] = LAYERS
            else:
                made[key] = item if whole else cut(item)
        return made

    files = {
        name: json.dumps(cut(json.loads(text))) if name.endswith("config.json") else text
        for name, text in repository.files.items()
    }
    layers = f"{LAYERS} of {max(most)[0]}" if most else ""
    return msgspec.structs.replace(repository, files=files), layers


def result_of(model: str, task: str, on: Sequence[Target]) -> Result:
    """Audit one model on the targets, in this process."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    options = CaptureOptions(time_limit=LIMIT / 2)
    request = request_of(find_source(f"recipe:{model}", options), on[0], options)
    assert request.repository is not None
    repository, layers = shortened(request.repository)
    request = msgspec.structs.replace(request, repository=repository)
    made = Result(model=model, task=task, layers=layers)
    try:
        return msgspec.structs.replace(_audited(made, request, on), seconds=round(time.perf_counter() - start, 1))
    except OpcheckError as error:
        return msgspec.structs.replace(made, problems=(one_line(error),))


def _audited(made: Result, request: CaptureRequest, on: Sequence[Target]) -> Result:
    cells: dict[Target, TargetSummary] = {}
    problems: dict[str, None] = {}
    captured = captures(request, on, silent)
    if left := ", ".join(str(on[n]) for n in captured.left):
        problems[f"this process has loaded code as on another Mac than {left}"] = None
    for shared in captured.shared:
        trace = shared.trace
        if trace is None:
            problems[shared.failure.message if shared.failure else "no trace"] = None
            continue
        if not trace.complete:
            problems |= dict.fromkeys(f"{each.kind}: {each.message}" for each in trace.problems)
        for summary in summaries(trace, [on[n] for n in shared.targets], load()):
            cells[summary.target] = summary
        made = msgspec.structs.replace(
            made, called=trace.called or ("forward",), parameters=trace.parameters, calls=len(trace.calls)
        )
    return msgspec.structs.replace(
        made, cells=tuple(cells[target] for target in on if target in cells), problems=tuple(problems)
    )


def kept() -> dict[str, Result]:
    """Read the results of earlier runs."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {result.model: result for result in (msgspec.json.decode(line, type=Result) for line in lines)}


def page(results: Sequence[Result]) -> str:
    """Write the tables: one row a model of at most WIDTH columns, and what is not native below them."""
    count = Counter(cell.headline for result in results for cell in result.cells)
    targets_of = max((result.cells for result in results), key=len, default=())
    headlines = [(_SIGNS[name], name, f"{count[name]} of {count.total()}") for name in HEADLINES if count[name]]
    tasks: dict[str, list[Result]] = {}
    for result in results:
        tasks.setdefault(result.task, []).append(result)
    sections = []
    for task, members in tasks.items():
        rows = [(result.model, _called(result), result.layers or "all", _result(result)) for result in members]
        sections.append(f"## {task}\n\n{narrow_table(('model', 'and for', 'layers', 'result'), rows)}\n")
    failed = [
        line for result in results if result.problems for line in (f"- {result.model}:", *_wrapped(result.problems))
    ]
    return page_text(
        "models",
        models=len(results),
        releases=", ".join(TORCH),
        systems=", ".join(MACOS),
        targets=len(targets_of),
        layers=LAYERS,
        torch=str(torch.__version__).partition("+")[0],
        libraries=", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES),
        headlines=narrow_table(("result", "headline of the audit", "models on a target"), headlines),
        tasks="\n".join(sections),
        not_native="\n".join(line for result in results for line in _not_native(result)) or "Nothing.",
        failed="\n".join(failed) or "Nothing.",
    )


def _called(result: Result) -> str:
    """Return what a model was called for beside its forward pass."""
    names = [call.partition("(")[0] for call in result.called]
    short = [_CALLS.get(name, name) for name in names if name != "forward"]
    return ", ".join("post-processing" if "post_process" in name else name for name in short) or "-"


def _result(result: Result) -> str:
    """Return the headline that holds on all targets, or the worst and on how many it holds."""
    count = Counter(_SIGNS[cell.headline] for cell in result.cells)
    if not count:
        return _SIGNS["could not tell"]
    worst = next(sign for sign in _SIGNS.values() if count[sign])
    return worst if len(count) == 1 else f"{worst} on {count[worst]} of {count.total()}"


def _not_native(result: Result) -> Iterator[str]:
    """Yield an entry for each set of operators, with the targets on which they are not native."""
    rows: dict[tuple[tuple[str, Status, FallbackKind | None, int], ...], list[Target]] = {}
    for cell in result.cells:
        if cell.operators:
            rows.setdefault(cell.operators, []).append(cell.target)
    for operators, on in rows.items():
        systems: dict[str, list[str]] = {}
        for target in on:
            systems.setdefault(str(target.torch), []).append(str(target.macos).removesuffix(".0"))
        where = "; ".join(f"torch {release} on macOS {', '.join(macos)}" for release, macos in systems.items())
        yield from textwrap.wrap(f"- {result.model}: {where}", WIDTH, subsequent_indent="  ")
        for op, status, kind, calls in operators:
            what = f"{status} ({kind})" if kind else status
            yield f"    - `{op}` {what}, {plural(calls, 'call')}"


def _wrapped(problems: Sequence[str]) -> Iterator[str]:
    for problem in problems:
        yield from (f"    {line}" for line in textwrap.wrap(problem, WIDTH - 8))


#: What a call is named by in the table.
_CALLS = {"the class of the logits": "class", "the classes of the logits": "classes", "the five best words": "words"}
#: The worst first.
_SIGNS = {
    "fails": "fails",
    "could not tell": "?",
    "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1": "variable",
    "runs, partly on the CPU": "partly",
    "runs natively": "native",
}


def prepare() -> None:
    """Import what each fork would import for itself, except timm: what that reads differs between the releases."""
    server.prepare()
    for library in ("transformers", "diffusers"):
        server.preload(library)
    importlib.import_module("transformers.generation.utils")
    importlib.import_module("sentence_transformers")


def main() -> None:
    """Audit what is not kept, write the page."""
    parser = argparse.ArgumentParser(description="Audit the public models.")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    on = targets.pairs(TORCH, MACOS, lists=load()).targets
    results, known = kept(), recipes()
    prepare()
    for name in options.models or known:
        if name in results and not options.again:
            continue
        task = known[name].task
        try:
            work = functools.partial(result_of, name, task, on)
            result = run_forked(work, Result, LIMIT, quiet=True)
        except WorkerError as error:
            result = Result(model=name, task=task, problems=(f"the process {error}",))
        results[name] = result
        signs = Counter(_SIGNS[cell.headline] for cell in result.cells)
        print(f"{name}: {dict(signs)} {result.problems} {result.seconds} s", flush=True)
        lines = [msgspec.json.encode(results[each]).decode() for each in known if each in results]
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    PAGE.write_text(page([results[name] for name in known if name in results]), encoding="utf-8")


if __name__ == "__main__":
    main()
