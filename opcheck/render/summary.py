"""The sentences of a report that several formats share."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from opcheck.common.grouping import group_values
from opcheck.common.sanitize import one_line
from opcheck.common.text import and_more, filesize, flop_count, percent, plural
from opcheck.common.versions import Version
from opcheck.common.vocabulary import HEADLINES, ROUTE_WORDS, Frequency
from opcheck.judge.memory.estimate import deciding, find_asked_mac, runs_out, smallest
from opcheck.lookup.matrix import STATES
from opcheck.model.records import CaptureFacts, GroupLocation, KernelNumbers, Memory, Report, SideWork
from opcheck.render import timing_page
from opcheck.render.document import Facts, Style, TextSpan, Words
from opcheck.render.report_words import NOWHERE, RUNS, WRONG
from opcheck.render.wording import LABELS

#: The side whose colour a headline has.
HEADLINE_STYLES: dict[str, Style] = dict(zip(HEADLINES, ("raises", "unknown", "cpu", "cpu", "mps"), strict=True))


def headline(report: Report) -> str:
    """Return a line that begins with our own words, so that no model's name reads as a command."""
    about = f"{one_line(report.model)} on {target(report)}"
    return f"{answer(report)}: {about}; {deciding_numbers(report)}"


def answer(report: Report) -> str:
    """Return the headline, with the wrong results that are not rare: ``runs natively, wrong results in 2 calls``."""
    return ", ".join((report.headline, *_wrong(report, "always", "sometimes")))


def _wrong(report: Report, *frequencies: Frequency) -> Iterator[str]:
    """Count the calls with wrong results of these frequencies."""
    for frequency in frequencies:
        calls = sum(each.calls for each in report.wrong if each.frequency == frequency)
        if calls:
            yield f"{WRONG[frequency]} in {plural(calls, 'call')}"


def target(report: Report) -> str:
    """Name the target, and note a release that was not chosen."""
    text = str(report.target)
    release = f"torch {report.target.torch}"
    return text.replace(release, f"{release} (the newest release)", 1) if report.newest else text


def deciding_numbers(report: Report) -> str:
    """Return the numbers that the headline rests on, ``3 of 12 calls on the CPU``, and the rare wrong results."""
    return ", ".join((_deciding_numbers(report), *_wrong(report, "rarely")))


def _deciding_numbers(report: Report) -> str:
    numbers, facts = report.totals, report.capture
    calls, needing = numbers["calls"], numbers["fallback_env"]
    if not calls:
        return "it calls no operator on mps" if facts.complete else "it ends before its first call"
    if report.headline == "runs natively":
        return f"all {plural(calls, 'call')} native" if calls > 1 else "its one call is native"
    ended = ""
    if not facts.complete:
        judged = plural(calls, "call")
        # With several calls of the model, calls after the one that ended were judged, too.
        several = len(facts.called) > 1
        ended = f"it breaks off, {judged} judged" if several else f"it ends after {judged}"

    def share(part: int, words: str) -> str:
        return f"{part:,} of {plural(calls, 'call')} {words}" if part else ""

    needs = "needs" if needing == 1 else "need"
    if report.headline == "could not tell":
        parts = [share(numbers["unknown"], "unknown"), ended]
    elif report.headline == "fails":
        raising = numbers["unsupported"]
        asks = needing and not report.target.cpu_fallback
        parts = [
            share(raising, "fails" if raising == 1 else "fail"),
            f"{needing:,} {needs} PYTORCH_ENABLE_MPS_FALLBACK=1" if asks else "",
            *(ended, _too_little(report.memory)),
        ]
        errors = sum(each.severity == "error" and not each.ignored for each in report.findings)
        if errors > 1:
            return f"{errors:,} errors: {', '.join(filter(None, parts))}".removesuffix(": ")
    elif report.headline == "runs, partly on the CPU":
        on_cpu = sum(n for name, n in numbers.items() if name.startswith("fallback"))
        cpu, flops, _ = _work(report)
        parts = [share(on_cpu, "on the CPU"), f"{percent(cpu.flops, flops)} of the FLOPs" if cpu and cpu.flops else ""]
    else:
        parts = [share(needing, f"{needs} the variable")]
    # No call decides: what does is a finding about the whole model.
    return ", ".join(filter(None, parts)) or f"{report.findings[0].rule} says why"


def _too_little(memory: Memory | None) -> str:
    mac = deciding(memory) if memory and runs_out(memory) else None
    return f"an estimated {filesize(memory.peak.total)} on a Mac of {mac.memory} GB" if memory and mac else ""


def _work(report: Report) -> tuple[SideWork | None, int, int]:
    """Return what the CPU does, and the FLOPs and bytes of all sides."""
    cpu = next((work for work in report.work if work.side == "cpu"), None)
    return cpu, sum(work.flops for work in report.work), sum(work.nbytes for work in report.work)


#: Lines of the facts of a model that runs natively: with the headline, ten.
_MOST = 7


def facts(report: Report, *, short: bool) -> Facts:
    """Return the summary of a report: at most ten lines, each behind its name.

    Args:
        report: The report.
        short: Name what only -v shows.
    """
    memory = report.memory
    # What fails is mended first; what is native has no share of the CPU.
    if short and memory and report.headline == "fails" and not runs_out(memory):
        memory = None
    native = short and report.headline == "runs natively"
    computed = computed_by(report) if native or not short else ""
    rows: tuple[tuple[str, Words], ...] = (
        ("run", capture(report) if report.capture.mode == "run" else ""),
        ("calls", "; ".join(filter(None, (totals(report), computed)))),
        ("numbers", numbers(report.numbers)),
        ("off the GPU", "" if native else leaves(report)),
        ("waits", waits(report)),
        ("memory", fits(memory) if memory else ""),
        *timing_page.facts(report.time, short=short),
        ("assumed", "; ".join(_assumptions(report))),
        ("not checked", _unchecked_parts(report) + (" (-v shows more)" if short else "")),
        ("wrong", _name_unproved(report)),
        ("next", TextSpan(next_command(report))),
    )
    shown = tuple((name, words) for name, words in rows if words)
    return Facts(shown, short, lines=2, most=_MOST if native else 0)


def leaves(report: Report) -> str:
    """Say which share of the work leaves the GPU, and what is copied for it."""
    cpu, flops, nbytes = _work(report)
    if not report.work:
        return transfers(report) if report.totals["calls"] else ""
    if cpu is None:
        whole = f"{flop_count(flops)} and {filesize(nbytes)}" if flops else filesize(nbytes)
        judged = {work.side for work in report.work} == {"mps"}
        return f"nothing: {whole} read and written stay on it" if judged else ""
    # SVD, sorting and transforms have no count of FLOPs: 0 % would read as no work.
    counted = f"{plural(cpu.calls, 'call')} (no formula for FLOPs)"
    if cpu.flops:
        counted = f"{percent(cpu.flops, flops)} of {flop_count(flops)}"
    read = f"{percent(cpu.nbytes, nbytes)} of {filesize(nbytes)} read and written"
    return f"{counted}, {read}; {transfers(report)}"


def computed_by(report: Report) -> str:
    """Say which share of the calls, and of the FLOPs, each sort of kernel computes; views do not count."""
    counted = [each for each in report.routes if each.route != "view"]
    calls, flops = sum(each.calls for each in counted), sum(each.flops for each in counted)
    if not any(each.route in {"graph", "metal", "mps", "either"} for each in counted):
        return ""
    counted.sort(key=lambda each: -each.calls)
    shares = (
        f"{ROUTE_WORDS[each.route]} {percent(each.calls, calls)}"
        + (f" ({percent(each.flops, flops)} of the FLOPs)" if each.flops else "")
        for each in counted
    )
    return f"computed by {', '.join(shares)}"


def numbers(runs: Sequence[KernelNumbers]) -> str:
    """Say which dtypes are safe, then how much of each run the release's own kernels computed a second time."""
    return "; ".join((*filter(None, map(_drift, runs)), *map(_checked_share, runs)))


def _drift(run: KernelNumbers) -> str:
    """Say from which layer on a run is off, or that a dtype is safe; empty where neither is known."""
    off = run.first_off
    if off:
        return f"{run.dtype or 'it'} is off from {off.name} on ({float(off.error):.1e})"
    return f"{run.dtype} is safe in every layer" if run.layers and run.dtype else ""


def _checked_share(run: KernelNumbers) -> str:
    if not run.calls.checked:
        return "; ".join(("no call was computed by the release's own kernels", *run.notes))
    calls = sum(line.calls for line in run.wrong)
    counts = {"the elements": run.elements, "the FLOPs": run.flops}
    shares = (f"{percent(n.checked, n.all)} of {name}" for name, n in counts.items() if n.all)
    wrong = f"wrong in {plural(calls, 'call')}" if calls else "none of it leaves the CPU's band"
    computed = f"{run.calls.checked:,} of {plural(run.calls.all, 'call')} ({', '.join(shares)})"
    kernels = f"Metal kernels of torch {run.torch}{f' in {run.dtype}' if run.dtype else ''}"
    end = "" if run.complete else ", the run broke off"
    return f"{computed} computed by the {kernels}: {wrong}{end}"


#: Lines of synchronizations that the summary names.
_WAITS = 2


def waits(report: Report) -> str:
    """Say how often the CPU waits for the GPU, and where most; empty: it does not."""
    lines: Counter[str] = Counter()
    for entry in report.synchronizations:
        where = entry.place.location
        lines[f"{entry.op}{f' {where}' if where else ''}"] += entry.place.count
    named = [f"{line} x{count:,}" if count > 1 else line for line, count in lines.most_common()]
    if not named:
        return ""
    times = "once" if lines.total() == 1 else f"{lines.total():,} times"
    return f"the CPU waits for the GPU {times}: {and_more(named, _WAITS)}"


def fits(memory: Memory) -> str:
    """Say what the run takes at most, and which Mac has that; of a program that ran, what grows."""
    if not memory.peaks:
        lines = [each.line for each in memory.growth]
        return f"grows at {and_more(lines, 1)} (OC132)" if lines else ""
    need = f"an estimated {filesize(memory.peak.total)} at most, in {memory.peak.phase}"
    swaps = "more than Metal recommends, may swap"
    if mac := find_asked_mac(memory):
        what = {"fits": "fits", "pressure": swaps, "raises": "raises"}
        return f"{need}; on a Mac of {mac.memory} GB: {what[mac.state]}"
    if enough := smallest(memory, "fits"):
        return f"{need}; fits a Mac of {enough.memory} GB"
    if swapping := smallest(memory, "pressure"):
        return f"{need}; {swaps} on a Mac of {swapping.memory} GB"
    return f"{need}; no Mac up to {memory.macs[-1].memory} GB has that"


#: Inputs that the summary names.
_INPUTS = 3


def _assumptions(report: Report) -> Iterator[str]:
    """Say what the run rests on that the user did not give."""
    facts = report.capture
    if facts.inputs_note:
        inputs = and_more(facts.inputs, _INPUTS)
        yield f"{facts.inputs_note}: {inputs}" if inputs else facts.inputs_note
    guesses = sum(problem.kind == "guess" for problem in report.problems)
    if guesses:
        yield f"{plural(guesses, 'guessed value')} that branches or shapes rest on"
    installed = facts.installed_torch
    if "--exact" in facts.flags and facts.mode != "run":
        yield f"run {_environment(facts)}"
    if installed and Version.parse(installed) != Version.parse(report.target.torch):
        yield f"Python code of torch {installed} in place of {report.target.torch}"


def _unchecked_parts(report: Report) -> str:
    """Return in one line what a report does not vouch for."""
    facts = report.capture
    if facts.mode == "run":
        return and_more(report.not_checked, 1)
    modules = len(facts.modules_not_called)
    parts = (
        "anything on a Mac",
        "numbers" if report.time else "numbers and speed",
        "other inputs and branches",
        "" if facts.complete else "what follows its end",
        f"{plural(modules, 'module')} never called" if modules else "",
    )
    return ", ".join(filter(None, parts))


def totals(report: Report) -> str:
    """Return ``12 calls of 3 operators: 11 native, 1 unknown``; no percentage without its denominator."""
    numbers = report.totals
    shares = "; ".join(f"{numbers[s]:,} {LABELS[s]}" for s in STATES if numbers[s])
    calls = f"{plural(numbers['calls'], 'call')} of {plural(numbers['operators'], 'operator')}"
    return f"{calls}: {shares}" if shares else calls


#: Tracers that know of copies what was printed of them.
_UNCOUNTED = ("log", "mac", "stand-in")


def capture(report: Report) -> str:
    """Describe how the calls were captured."""
    facts = report.capture
    inputs = f", inputs {', '.join(facts.inputs)}" if facts.inputs else ""
    inputs += f" ({facts.inputs_note})" if facts.inputs_note else ""
    inputs += f", called for {'; '.join(facts.called)}" if facts.called else ""
    end = "" if facts.complete else ", broke off before its end"
    if facts.mode == "run":
        how = RUNS.get(facts.tracer, RUNS["emulator"])
        return how + (f", torch {facts.installed_torch}" if facts.installed_torch else "") + end
    parts = (
        facts.mode,
        facts.optimizer and f"optimizer {facts.optimizer}",
        facts.autocast and f"autocast {facts.autocast}",
        facts.loss and f"loss: {facts.loss}",
        f"tracer {facts.tracer}, {_environment(facts)}, {facts.parameters:,} parameters",
    )
    return f"{', '.join(filter(None, parts))}{inputs}{end}"


def _environment(facts: CaptureFacts) -> str:
    """Name the torch that ran, and with --exact the libraries of its environment."""
    torch = f"torch {facts.installed_torch}"
    if "--exact" not in facts.flags:
        return torch
    libraries = (f"{name} {version}" for name, version in facts.packages.items() if name != "torch")
    return f"in an environment of its own with {', '.join((torch, *libraries))}"


def transfers(report: Report) -> str:
    """Count the copies of the fallbacks, or say that there are none."""
    copies = report.partition
    if not copies.transfers_to_cpu + copies.transfers_to_mps:
        if report.capture.tracer in _UNCOUNTED:
            return "copies by CPU fallbacks were not counted separately"
        return "no copies by a CPU fallback"
    regions = sum(region.side == "cpu" for region in copies.regions)
    count = plural(copies.transfers_to_cpu, "copy")
    there = f"{count} to the CPU ({filesize(copies.bytes_to_cpu)})"
    back = f"{copies.transfers_to_mps:,} back ({filesize(copies.bytes_to_mps)})"
    # A counted run has no call graph, so regions are unavailable.
    around = f", around {plural(regions, 'CPU region')}" if regions else ""
    return f"{there}, {back}{around}"


def evidence(report: Report) -> str:
    """Name the wheel that the registrations were read from, and say how old that data is."""
    lists = report.op_lists
    wheel = f"{lists.wheel} (sha256 {lists.sha256[:12]})"
    return f"registrations of {wheel}, built {lists.built}; op lists {lists.digest[:12]}"


def _name_unproved(report: Report) -> str:
    """Name the wrong results that a run on shapes cannot confirm, and when they happen."""
    unproved = (each for each in report.wrong if each.frequency != "always")
    rare = "rarely: "
    cases = [f"{', '.join(e.ids)} ({rare * (e.frequency == 'rarely')}{e.condition})" for e in unproved]
    return "; ".join(dict.fromkeys(cases))


def certain_statements(report: Report) -> frozenset[str]:
    """Return the limitations and advisories that some call certainly meets."""
    return frozenset(entry.detail for group in report.groups for entry in group.verdict.evidence)


def statements(report: Report) -> list[tuple[str, str]]:
    """Write a line for each limitation and advisory that operators meet or may meet: who, and what.

    A statement that no call certainly meets is marked. A statement that the lists do not describe,
    such as a refusal of the capture, has its id alone.
    """
    verdicts = ((group.op, group.verdict) for group in report.groups)
    operators = group_values((name, op) for op, of in verdicts for name in (*of.limitations, *of.advisories))
    certain = certain_statements(report)
    lines = []
    for name in sorted(operators):
        who = and_more(sorted(set(operators[name])), 3)
        statement = report.statements.get(name)
        perhaps = "" if name in certain else " (perhaps)"
        lines.append((name, f"{who}{perhaps}: {statement.summary}" if statement else who))
    return lines


def place(entry: GroupLocation) -> str:
    """Return ``file:line in function (module)``, with the count where it is more than 1.

    A call of backward has the line of its forward call, and is marked.
    """
    where = entry.location
    function = where.function if where else ""
    # A torch.autograd.Function's backward has its own line.
    follows = where and entry.phase == "backward" and not function.endswith("backward")
    parts = (
        "in the backward of" if follows else "",
        str(where) if where else f"(no line of the program: {NOWHERE[entry.phase]})",
        f"in {function}" if function else "",
        f"({entry.module})" if entry.module else "",
        f"x{entry.count:,}" if entry.count > 1 else "",
    )
    return " ".join(filter(None, parts))


def next_command(report: Report) -> str:
    """Return what to run now: the page of the worst finding, or the gate that keeps a good result."""
    worst = next(iter(report.findings), None)
    if worst is not None and worst.severity != "note":
        return f"opcheck explain {worst.rule}"
    unproved = [each.ids[0] for each in report.wrong if each.frequency == "sometimes"]
    if unproved:
        return f"opcheck explain {unproved[0]}"
    if report.capture.mode == "run" and report.capture.tracer != "emulator":
        return "opcheck verify PREDICTION.json OBSERVATION.json, with an audit's report and this one"
    if report.capture.mode == "run":
        return "keep it so in CI: opcheck run --fail-on fallback, or the pytest fixture mps_emulated"
    words = ["opcheck", "audit", report.model, *report.capture.flags]
    if report.headline == "could not tell":
        return shlex.join([*words, "-v"])
    words += ["--torch", report.target.torch, "--macos", report.target.macos]
    return shlex.join([*words, "--fail-on", "fallback"])
