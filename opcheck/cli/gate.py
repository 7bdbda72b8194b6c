"""``opcheck gate``: all models of a project on all of its targets, and one exit code."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from opcheck.cli import VERBS, config, flags, output, output_formats, parse_options
from opcheck.cli.capture_options import borrowed
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.common.text import plural
from opcheck.data.registrations import OpLists, load
from opcheck.data.target_ranges import NEWEST
from opcheck.judge.policy import FAIL_ON, LIMITS, Policy, limit
from opcheck.judge.rules import BY_ID
from opcheck.model.ignores import Ignores
from opcheck.project.cache import default_folder
from opcheck.project.gate import baseline as baseline_file
from opcheck.project.gate.baseline import Baseline
from opcheck.project.gate.records import GateReport
from opcheck.project.gate.settings import (
    Model,
    Planned,
    Settings,
    Targets,
    of_all,
    policy,
    settings,
)
from opcheck.project.gate.work import Job, Result, kept
from opcheck.render import WITHOUT_PAGE, render, step_summary

#: The code of a shell for what Ctrl-C ended.
_INTERRUPTED = 130
_MOST_JOBS = 4
_BORROWED = ("dtype", "grad", "mode", "optimizer", "autocast", "tracer", "timeout", "memory_limit")
_SAID = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)


@click.command(
    "gate",
    cls=flags.Configured,
    help=VERBS["gate"],
    params=borrowed(*_BORROWED, "strict", "quiet", "verbose"),
    epilog="MODEL is a name of [[tool.opcheck.models]] in pyproject.toml, or a model as opcheck audit "
    "takes it; without any, all of them. Their targets are [[tool.opcheck.targets]]. Exit codes: 0 "
    "passed; 1 something fails that is not in the baseline; 2 usage; 3 a model could not be told.",
)
@click.argument("names", nargs=-1, metavar="[MODEL]...")
@flags.flag(
    "--torch",
    metavar="RANGE",
    help='Not the configured targets but these: 2.13, ">=2.9", "last 3".',
)
@flags.flag("--macos", metavar="RANGE", help='The same of macOS: 15, ">=14".')
@flags.fallback
@flags.flag(
    "--environment",
    default="",
    metavar="NAME",
    help="Only the targets that name this environment.",
)
@flags.fail_on(FAIL_ON, "unsupported", "; unsupported: whatever raises on the target.")
@flags.flag(
    "--max",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help=f"Allow so many: {', '.join(LIMITS)}. bytes=10MB. Repeatable.",
)
@flags.flag(
    "--baseline",
    default="",
    metavar="FILE",
    help="Findings that are known: only what is not in the file fails.",
)
@click.option("--update-baseline", is_flag=True, help="Write what fails or could into --baseline.")
@flags.jobs(min(_MOST_JOBS, os.cpu_count() or 1), "Models that are audited at once.")
@flags.flag("--cache/--no-cache", default=True, help="Keep results for the next run.")
@flags.flag(
    "--cache-dir",
    default="",
    show_default="the user's cache",
    metavar="FOLDER",
    help="Where they are kept.",
)
@flags.form(WITHOUT_PAGE)
@flags.output()
@click.pass_context
def command(
    ctx: click.Context, /, *, names: Sequence[str], update_baseline: bool, quiet: bool, **given: Any
) -> int:
    """Audit what is configured, write the report, return the exit code."""
    if update_baseline and not given["baseline"]:
        raise UsageError(
            "there is no baseline to update",
            context="--update-baseline",
            hint="name its file: --baseline opcheck-baseline.yaml",
        )
    lists = load()
    plan = _plan(ctx, names, given, lists)
    known = _baseline(given["baseline"], may_be_missing=update_baseline)

    from opcheck.project.gate import assemble

    policies = _policies(ctx, given)
    whole = not names and not given["environment"] and not _own_targets(ctx)
    results, interrupted = _results(plan, given, quiet=quiet)

    def assembled(baseline: Baseline | None) -> GateReport:
        # What silences nothing is asked of each report anew.
        of_audit = [entry for entry in plan.ignores if entry.rule in BY_ID]
        ignores = Ignores(of_audit, today=config.today(), root=Path.cwd())
        return assemble.report(
            plan,
            results,
            policies,
            ignores,
            op_lists=lists.digest,
            whole=whole,
            baseline=baseline,
        )

    report = assembled(known)
    if update_baseline and not interrupted:
        known = baseline_file.updated(known, report.cells, lists.digest, whole=whole)
        baseline_file.write(Path(given["baseline"]), known)
        count = sum(map(len, known.models.values()))
        output.note(f"{plural(count, 'finding')} known now, in {given['baseline']}")
        report = assembled(known)
    name = output_formats.chosen(given["format_name"], given["output_path"], WITHOUT_PAGE)
    if given["output_path"] in flags.STDOUT:
        output.emit(render(report, name))
    else:
        write_text(Path(given["output_path"]), render(report, name))
        output.note(f"the report is in {given['output_path']}")
    output.add_to_summary(lambda: step_summary(report), name)
    return _INTERRUPTED if interrupted else report.code


def _plan(
    ctx: click.Context, names: Sequence[str], given: dict[str, Any], lists: OpLists
) -> Settings:
    """The models and targets that are asked for.

    Raises:
        UsageError: the configuration has a mistake, or there is no model.
    """
    tables, where = config.table(Path.cwd())
    own = None
    if _own_targets(ctx) or not tables.get("targets"):
        own = Targets(
            torch=given["torch"] or NEWEST,
            macos=given["macos"] or NEWEST,
            fallback=given["fallback"],
        )
    plan = settings(tables, where, lists, environment=given["environment"], targets=own)
    if own and _own_targets(ctx):
        # They are for all models, whatever target their tables name.
        freed = [msgspec.structs.replace(model, targets=()) for model in plan.models]
        plan = msgspec.structs.replace(plan, models=tuple(freed))
    if names:
        by_name = {model.name: model for model in plan.models}
        chosen = [by_name.get(name) or _unnamed(name, by_name) for name in dict.fromkeys(names)]
        plan = msgspec.structs.replace(plan, models=tuple(chosen))
    # A model whose targets are all of another environment has no part in this run.
    models = tuple(model for model in plan.models if of_all(model, plan.targets))
    if not models:
        raise UsageError(
            "no model has a target in this run" if plan.models else "no model is configured",
            context=f"opcheck gate; {where}",
            hint='write models = ["file.py:attribute"] below [tool.opcheck], or name one here',
        )
    return msgspec.structs.replace(plan, models=models)


def _unnamed(name: str, known: Collection[str]) -> Model:
    """A model that the configuration does not hold."""
    if ":" in name or name.endswith((".pt2", ".py")):
        return Model(name=name, model=name)
    near = difflib.get_close_matches(name, known, 1)
    raise UsageError(
        f"no model is called {name!r}",
        context="opcheck gate",
        hint=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}",
    )


def _own_targets(ctx: click.Context) -> bool:
    """Whether somebody asks for other targets than the configured ones."""
    return any(_is_said(ctx, name) for name in ("torch", "macos", "fallback"))


def _is_said(ctx: click.Context, name: str) -> bool:
    """Whether it comes from the command line or a variable, not from the configuration."""
    return ctx.get_parameter_source(name) in _SAID


def _policies(ctx: click.Context, given: dict[str, Any]) -> Callable[[Model, Planned], Policy]:
    limits = dict(limit(text) for text in given["limits"])
    said = _is_said(ctx, "limits")
    base = Policy(fail_on=given["fail_on"], limits=limits, strict=given["strict"])
    # What the command line says wins over every table.
    over = Policy(
        fail_on=given["fail_on"] if _is_said(ctx, "fail_on") else "", limits=limits if said else {}
    )
    return lambda model, planned: policy(model, planned, base, over)


def _results(
    plan: Settings, given: dict[str, Any], *, quiet: bool
) -> tuple[dict[str, Result], bool]:
    """What each model came to, by name, and whether somebody interrupted."""
    from opcheck.project.gate.run import run

    every = [_job(model, plan, given) for model in plan.models]
    results = {job.name: result for job in every if (result := kept(job)) is not None}
    jobs = [job for job in every if job.name not in results]
    interrupted = False
    with output.progress(quiet=quiet, verbose=given["verbose"]) as progress:

        def say(number: int, text: str) -> None:
            if progress is not None:
                progress(f"{len(results)} of {len(every)} models; {jobs[number].name}: {text}")

        def done(number: int, result: Result) -> None:
            results[jobs[number].name] = result
            say(number, result.failed.message if result.failed else "done")

        try:
            run(jobs, given["jobs"], done, say)
        except KeyboardInterrupt:
            interrupted = True
    if not quiet:
        _tell(results, interrupted=interrupted)
    return results, interrupted


def _tell(results: Mapping[str, Result], *, interrupted: bool) -> None:
    """What a reader of the report need not know, but who waited for it."""
    found = sum(result.kept for result in results.values())
    if found:
        total = sum(len(result.reports) for result in results.values())
        output.note(f"{found} of {total} results are kept ones: nothing has changed (--no-cache)")
    for name, result in results.items():
        if result.not_kept:
            output.note(f"{name} cannot be kept for the next run: {result.not_kept}")
    if interrupted:
        output.note("interrupted: the report holds what was finished")


def _job(model: Model, plan: Settings, given: dict[str, Any]) -> Job:
    def own(name: str) -> Any:
        value = getattr(model, name)
        return given[name] if value is None else value

    targets = tuple(planned.target for planned in of_all(model, plan.targets))
    request = parse_options.request_of(
        model.model,
        targets[0].torch,
        targets[0].macos,
        fallback=targets[0].cpu_fallback,
        inputs=model.input,
        input_files=model.input_file,
        settings=(),
        checkpoints=model.checkpoint,
        dtype=own("dtype"),
        grad=own("grad"),
        mode=own("mode"),
        optimizer=own("optimizer"),
        autocast=own("autocast"),
        tracer=own("tracer"),
        timeout=given["timeout"],
        memory_limit=given["memory_limit"],
    )
    return Job(
        name=model.name,
        request=msgspec.structs.replace(request, config=model.config),
        targets=targets,
        cache=str(given["cache_dir"] or default_folder()) if given["cache"] else "",
        show_output=given["verbose"],
    )


def _baseline(file: str, *, may_be_missing: bool) -> Baseline | None:
    if not file or (may_be_missing and not Path(file).exists()):
        return None
    return baseline_file.read(Path(file))
