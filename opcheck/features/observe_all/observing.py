"""Runs the steps of ``opcheck observe-all``, each in a process of its own with a limit of time, at most twice."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from opcheck.common import documents
from opcheck.common.errors import InputError, OpcheckError
from opcheck.common.yaml_text import load_shipped
from opcheck.data.device_evidence import EvidenceFile, Result
from opcheck.data.device_evidence import load as load_probe
from opcheck.data.registrations import OpLists
from opcheck.device import observation_store
from opcheck.device.here import ThisMac
from opcheck.device.observation_store import FILE, Host, HostEvidence, HostRow, HostStep, StepKind
from opcheck.lookup.answer import answer
from opcheck.lookup.answer_records import Answer

#: Seconds that a step may take, and how often it is tried.
_SECONDS, _ATTEMPTS = 600.0, 2
_TABLE = load_shipped(__file__, "steps.yaml")


class ObservedSteps(NamedTuple):
    """The steps of a run."""

    kinds: tuple[StepKind, ...]
    programs: tuple[Path, ...] = ()
    #: OpInfos to probe, models, operations of kernels; none: those of steps.yaml
    ops: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    #: seconds; 0: without a limit
    budget: float = 0.0


class PlannedStep(NamedTuple):
    """A step and the words of its command; the command writes its answer to a file that is put behind them."""

    kind: StepKind
    name: str
    words: tuple[str, ...]


def plan(chosen: ObservedSteps) -> Iterator[PlannedStep]:
    """Yield the steps in their order: what is quick comes first, so that a short run has some of everything."""
    models, chosen_models = _TABLE["models"], chosen.models or tuple(_TABLE["models"])
    # name of a step -> its words in the command, and those behind them
    named: dict[str, dict[str, tuple[str, Sequence[str]]]] = {
        "doctor": {"doctor": ("", ())},
        "models": {name: (name, words) for name, words in models.items() if name in chosen_models},
        "programs": {program.name: (str(program), ()) for program in chosen.programs},
        "kernels": {name: (name, ()) for name in chosen.kernels or _TABLE["kernels"]},
        "probe": {name: (name, ()) for name in chosen.ops or _TABLE["probe"]},
    }
    for kind, template in _TABLE["commands"].items():
        for name, (word, more) in named[kind].items() if kind in chosen.kinds else ():
            before, _, after = template.partition(" MORE")
            words = [word if each == "NAME" else each for each in before.split()]
            yield PlannedStep(kind, name, (*words, *more, *after.split()))


_JSON = ("--format", "json", "--output")


def observe(
    into: Path, host: Host, mac: ThisMac, steps: ObservedSteps, lists: OpLists, say: Callable[[str], None] | None = None
) -> HostEvidence:
    """Run the steps that the folder does not have yet; it is complete evidence after each of them.

    Raises:
        InputError: the folder has evidence of another host, or of another key.
        UsageError: the folder cannot be written.
    """
    evidence = _start(into, host, lists)
    done = {(step.kind, step.name): step for step in evidence.steps if step.state == "done"}
    planned = [*plan(steps)]
    end = time.monotonic() + steps.budget if steps.budget else float("inf")
    for number, each in enumerate(planned, 1):
        if (each.kind, each.name) in done:
            continue
        if time.monotonic() > end:
            break
        if say is not None:
            say(f"{number} of {len(planned)}: {each.kind} {each.name}")
        done[each.kind, each.name] = _run(into, each, mac, host, lists)
        complete = all((step.kind, step.name) in done for step in planned)
        evidence = replace(evidence, steps=tuple(done.values()), complete=complete)
        observation_store.write_evidence(into, evidence)
    return evidence


def _start(folder: Path, host: Host, lists: OpLists) -> HostEvidence:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists():
        run = os.urandom(16).hex()
        today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
        evidence = HostEvidence(run=run, made=today, op_lists=lists.digest, host=host)
        observation_store.write_evidence(folder, evidence)
        return evidence
    evidence = observation_store.read_evidence(folder)
    if evidence.host != host or evidence.op_lists != lists.digest:
        text = "the folder has evidence of another host or of other op lists"
        raise InputError(text, context=str(folder / FILE), hint="name another folder")
    return evidence


def _run(folder: Path, planned: PlannedStep, mac: ThisMac, host: Host, lists: OpLists) -> HostStep:
    start, why = time.monotonic(), ""
    step = HostStep(kind=planned.kind, name=planned.name, state="failed")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            rows = _rows(planned, mac, host, lists)
        except (OpcheckError, OSError, ValueError, subprocess.TimeoutExpired) as error:
            why = " ".join(str(error).split())[:500]
            continue
        step = observation_store.write_rows(folder, step, rows)
        return replace(step, state="done", attempts=attempt, seconds=round(time.monotonic() - start, 1))
    return replace(step, attempts=_ATTEMPTS, why=why)


def _rows(planned: PlannedStep, mac: ThisMac, host: Host, lists: OpLists) -> Sequence[HostRow]:
    """Run the command of a step, and return its rows.

    Raises:
        OpcheckError, ValueError: there is no answer.
        OSError: the answer cannot be written: the disk is full.
        subprocess.TimeoutExpired: it took too long.
    """
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as scratch:
        answer = Path(scratch, "answer.json")
        words = [*planned.words, str(answer)]
        if planned.kind == "kernels":
            run = Path(scratch, "kernels.json")
            _call(["-m", "opcheck", *words[:-1], "--torch", mac.torch, *_JSON, str(run)], run)
            words = [planned.name, str(run), mac.stand_in, str(answer)]
            _call(["-m", "opcheck.features.observe_all.child.kernel_here", *words], answer)
        else:
            more = ["--folder", str(Path(scratch, "reports"))] if "--here" in words else []
            _call(["-m", "opcheck", *words, *more], answer)
        if planned.kind == "probe":
            return rows_of_probe(load_probe(answer), host, lists)
        content = documents.from_json(documents.read(answer))
        ends = [*_ends(planned.name, Path(scratch, "reports"))]
    if planned.kind == "kernels":
        return msgspec.convert(content, tuple[HostRow, ...])
    if planned.kind == "doctor":
        return []
    rows = [
        msgspec.convert({**pair, "subject": planned.name, "text": pair["prints"]}, HostRow) for pair in content["pairs"]
    ]
    # An operator that contradicts explains the end.
    return rows if any(row.is_contradiction for row in rows) else [*rows, *ends]


def _call(arguments: Sequence[str], answer: Path) -> None:
    """Run Python with these arguments.

    Raises:
        ValueError: it left no answer.
    """
    done = _python(*arguments)
    if not answer.is_file():
        last = [line for line in done.stderr.strip().splitlines() if line.strip()][-4:]
        raise ValueError(" ".join(last) or f"exit code {done.returncode}")


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
    )


def _ends(name: str, reports: Path) -> Iterator[HostRow]:
    """Yield a row where the machine broke off a run that was predicted to end, or the other way round."""
    if not (reports / "observed.json").is_file():
        return
    predicted, observed = (
        documents.from_json(documents.read(reports / f"{each}.json")) for each in ("predicted", "observed")
    )
    ends = "runs to its end" if observed["capture"]["complete"] else "breaks off"
    texts = [problem["message"] for problem in observed["problems"]]
    predicts = _TABLE["ends"].get(predicted["headline"], "unknown")
    text = texts[-1][:500] if texts else ""
    yield HostRow(subject=name, op=f"run {name}", predicted=predicts, observed=ends, text=text)


def gather_host(mac: ThisMac) -> Host:
    """Return the description of this machine, from the facts that ``opcheck doctor --gather`` writes.

    Raises:
        InputError: the facts cannot be had.
    """
    if mac.stand_in:
        return Host(torch=mac.torch, macos=mac.macos, chip="emulated", gpu="emulated")
    done = _python("-m", "opcheck", "doctor", "--gather")
    try:
        facts = json.loads(done.stdout)
    except ValueError as error:
        raise InputError(
            "opcheck doctor --gather gave no facts", context=done.stderr.strip()[-300:], hint="run opcheck doctor"
        ) from error
    machine = facts.get("machine", {})
    hosted = bool(machine.get("virtual") or machine.get("hosted"))
    # Variables of GitHub's runners.
    image = " ".join(filter(None, map(os.environ.get, ("ImageOS", "ImageVersion"))))
    return Host(
        torch=mac.torch,
        macos=mac.macos,
        build=str(machine.get("build") or ""),
        chip=str(machine.get("chip") or machine.get("model") or ""),
        image=image,
        gpu="virtual" if hosted else "real",
    )


#: What a Mac prints where an operator has no kernel and the fallback variable is not set.
_NO_KERNEL = "not currently implemented for the MPS device"
#: Effects of limitations that may apply to some samples: then the lists predict neither.
_DEPENDS = {"raises": "unsupported", "falls_back": "fallback", "aborts": "aborts"}


def rows_of_probe(evidence: EvidenceFile, host: Host, lists: OpLists) -> Sequence[HostRow]:
    """Return a row for each operator of each result that the lists predict."""

    @cache
    def predict(op: str, dtype: str) -> Answer | None:
        try:
            return answer(op, host.torch, host.macos, dtype, lists=lists)
        except OpcheckError:
            return None

    rows = []
    for result in evidence.results:
        for op, observed in _list_observed(result):
            answered = predict(op, result.dtype)
            rows.append(
                HostRow(
                    subject=result.opinfo,
                    op=op,
                    dtypes=(result.dtype,),
                    predicted=_predict(answered, observed) if answered else "unknown",
                    observed=observed,
                    count=max(result.samples, 1),
                    text=result.text if op == result.op or not result.op else "",
                )
            )
    return rows


def _list_observed(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the operators of a result, and what each did."""
    if result.outcome == "crashes":
        yield f"torch.{result.opinfo.partition('/')[0]}", "aborts"
        return
    for op, state in result.calls.items():
        if op != result.op:
            yield op, "wrong" if state == "wrong" else "native"
    if result.op:
        fell_back = result.outcome == "falls back" or _NO_KERNEL in result.text
        other = "wrong" if result.outcome == "wrong" else "unsupported"
        yield result.op, "fallback" if fell_back else other


def _predict(answered: Answer, observed: str) -> str:
    """Return what the lists predict; where it depends on inputs, what was observed if they name it."""
    notes = [note for each in answered.overloads for note in each.limitations]
    if any(_DEPENDS.get(note.effect) == observed for note in notes):
        return observed if answered.status == "native" else str(answered.status)
    if observed == "wrong":
        return "wrong" if answered.wrong else "native"
    return str(answered.status)
