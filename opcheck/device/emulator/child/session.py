"""``opcheck.emulate``: for the length of a with block, this process runs on an emulated Mac."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Iterator

import msgspec
import torch

from opcheck.capture.child import endings
from opcheck.common.errors import UsageError, named_by_keyword
from opcheck.common.text import one_line, plural, type_and_text
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES
from opcheck.data import targets
from opcheck.data.registrations import OpLists, load
from opcheck.device.emulator.child import vision_kernels
from opcheck.device.emulator.child.call_counts import CallCounts, merge_groups, origin_on_a_mac, partition_of
from opcheck.device.emulator.child.emulator import Emulator
from opcheck.device.emulator.child.mac_errors import CALL_RAISED, REFUSED_EVERYWHERE, kind_on_a_mac
from opcheck.device.emulator.child.torch_packages import export_below, processes_of_mac, run_uncompiled
from opcheck.device.emulator.child.verdicts import Verdicts
from opcheck.device.emulator.emulation_request import ProcessReport, make_run_trace
from opcheck.device.emulator.processes import Processes, find_lacking_global
from opcheck.device.emulator.user_program import warnings_at_their_lines
from opcheck.judge.assembly import assemble
from opcheck.judge.rules.rule import Audited
from opcheck.model.records import OWN_LIMITS, KernelNumbers, Memory, Problem, Report
from opcheck.numerics.kernels.child.kernel_run import KernelsMode, ShadowKernels
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.dispatcher import Simulator
from opcheck.simulator.errors import ProcessAbortedError
from opcheck.simulator.mac import simulated_mac
from opcheck.simulator.visible.public_names import names_of_the_target
from opcheck.simulator.visible.requirements import differing_libraries
from opcheck.tracing.call_sites import ProgramStack
from opcheck.tracing.eager_compile import add_left_out
from opcheck.tracing.source_locations import locate_raise
from opcheck.worker import platform

FAILS, COULD_NOT_TELL = HEADLINES[:2]

#: the simulator keeps every value, whatever its size
_ALL = 1 << 62

#: the operators that a program calls to move tensors
_MOVES = frozenset({"aten::_to_copy", "aten::copy_", "aten::detach", "aten::alias"})

#: pull request 178037 of PyTorch: no release raises here
_IN_FORK = "a forked process computed on mps: Metal does not support fork, and a Mac may hang or crash there"

_ACTIVE: list[Emulation] = []


class Emulation:
    """A run on the emulated Mac; ``report`` has at any time what it has done so far."""

    def __init__(self, target: Target, lists: OpLists, name: str, kernels: KernelsMode = "") -> None:
        self.target = target
        self.name = name
        self._lists = lists
        self._kernels = ShadowKernels(target, lists, kernels) if kernels else None
        self._tally = CallCounts(Verdicts(target, lists), ProgramStack(), self._kernels)
        self._problems: list[Problem] = []
        self._complete = True
        #: those that the program starts; None where they are not followed
        self._processes: Processes | None = None
        #: writes the report of a process that the program started, which a signal may end at any time
        self.leave: Callable[[], None] = lambda: None
        #: None until the block is entered
        self._mac: Simulator | None = None

    @property
    def report(self) -> Report:
        """What the operator calls did, in the form of ``opcheck audit``.

        Raises:
            OpListError: the lists are damaged.
        """
        libraries = differing_libraries(self.target)
        processes = self._processes
        children = processes.reports() if processes else []
        reports = [self.process_report(), *children]
        # Processes may do the same.
        problems = tuple(dict.fromkeys(each for process in reports for each in process.problems))
        growth = tuple(dict.fromkeys(each for process in reports for each in process.growth))
        if forked := any(child.forked for child in children):
            problems = (*problems, Problem(kind="mps_in_fork", message=_IN_FORK))
        trace = make_run_trace(
            self.name,
            "emulator",
            str(torch.__version__),
            self.target,
            differences=(*libraries.values(), *target_reads.READS.notes.values()),
            differing_libraries=tuple(libraries),
            problems=problems,
            complete=self._complete,
            environment={name: value for name, value in os.environ.items() if name.startswith("PYTORCH_")},
        )
        audited = Audited(
            groups=merge_groups(group for process in reports for group in process.groups),
            trace=trace,
            target=self.target,
            partition=partition_of(process.copies for process in reports),
            lists=self._lists,
            memory=Memory(growth=growth) if growth else None,
            numbers=(self.numbers,) if self.numbers else (),
        )
        report = assemble(audited)
        notes = [*report.not_checked]
        if vision_kernels.is_installed() and any("torchvision::" in row.op for row in self._tally.rows):
            part = "torchvision's compiled part, which does not load here"
            notes.append(f"{part}: formulas in Python computed what its operators give")
        if processes and processes.unfollowed:
            started = plural(processes.unfollowed, "other start")
            notes.append(f"{started} of Python by the program, as a subprocess: nothing is emulated in them")
        if lost := sum(child.lost for child in children):
            notes.append(f"{lost} of the processes that the program started: they left no report")
        failed = report.headline == FAILS or any(each.kind in {CALL_RAISED, "process_died"} for each in problems)
        headline = FAILS if failed else COULD_NOT_TELL if forked else report.headline
        return msgspec.structs.replace(report, headline=headline, not_checked=tuple(notes))

    @property
    def numbers(self) -> KernelNumbers | None:
        """What came of computing the calls by the release's kernels; None where they were not."""
        return self._kernels.result() if self._kernels else None

    @property
    def counted_calls(self) -> int:
        """The calls so far."""
        return self._tally.rows.total()

    def calls_inside(self, module: str) -> tuple[int, int]:
        """Return how many calls inside of a module the release's kernels computed, and all calls."""
        return self._kernels.tally.calls_inside(module) if self._kernels else (0, 0)

    def follow(self, processes: Processes, *, is_main: bool = True) -> None:
        """Take up what processes of the program do: in the main one their reports, in a fork that it came to mps."""
        processes.at_not_sent = self.note_not_sent
        if is_main:
            self._processes = processes
        platform.after_fork(lambda: self._tally.watch_first(processes.note_use_in_fork))

    def process_report(self) -> ProcessReport:
        """Return what this process did, if the program started it."""
        return ProcessReport(
            groups=self._tally.groups(),
            problems=tuple(self._problems),
            copies=self._tally.copies(),
            growth=self._tally.growth(self.target, self._lists),
            started=not any(problem.kind == "not_spawned" for problem in self._problems),
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """For the length of the block, this process runs on the emulated Mac.

        Raises:
            UsageError: an emulated Mac runs already; its registrations belong to the process.
        """
        if _ACTIVE:
            text = "an emulated Mac is running in this process already"
            hint = "leave the first block before the next is entered"
            raise UsageError(text, context=str(_ACTIVE[0].target), hint=hint)
        _ACTIVE.append(self)
        target_reads.READS.forget()
        registrations = dict(self._lists.operators(str(self.target.torch)))
        tally = self._tally
        try:
            with (
                simulated_mac(
                    self.target, registrations, tally, keep=_ALL, simulator_type=Emulator, memory=tally.memory
                ) as mac,
                run_uncompiled(functools.partial(add_left_out, self._problems)),
                processes_of_mac(self.target),
                tally.follow_modules(),
                names_of_the_target(),
                warnings_at_their_lines(),
                export_below(),
            ):
                mac.before_call = tally.ask
                if isinstance(mac, Emulator):
                    mac.check_size = tally.memory.check_size
                    mac.kernel_check = self._kernels.check if self._kernels else None
                self._mac = mac
                yield
        finally:
            _ACTIVE.clear()

    @property
    def ended_by_limit(self) -> bool:
        """Return whether opcheck, and not the program or its Mac, ended the run."""
        return any(problem.kind in OWN_LIMITS for problem in self._problems)

    def read_variables(self) -> None:
        """Read the fallback variable as the program has set it.

        MPSFallback.mm reads it once, when torch is imported.
        """
        # std::stoi takes the number that the text begins with.
        number = re.match(r"\s*[+-]?\d{1,4000}", os.environ.get(target_reads.FALLBACK_VARIABLE, ""))
        on = number is not None and int(number[0]) != 0
        if on is not self.target.cpu_fallback:
            self.target = msgspec.structs.replace(self.target, cpu_fallback=on)
            self._tally.retarget(self.target)

    def give_up_starting(self) -> None:
        """End the program, which starts processes without end, because none of them can start."""
        message = "processes are started again and again, and each ends at once: on a Mac without end"
        self._problems.append(Problem(kind="not_spawned", message=message, answered=message))
        platform.interrupt_main_thread()

    def note_not_sent(self, error: BaseException) -> bool:
        """Note what a thread of a queue raises, which the program does not see, if a Mac alone raises it."""
        kind = endings.kind_of(error)
        if kind:
            problem = endings.problem_of(error, kind, locate_raise(error))
            message = f"{problem.message}; what waits for it waits without end"
            self._add(msgspec.structs.replace(problem, message=message))
        return bool(kind)

    def note_lacking(self, main_globals: Collection[str], error: BaseException) -> None:
        """Note if an error of this process is due to a global that the main process sets and this one does not."""
        if name := find_lacking_global(error, main_globals):
            text = type_and_text(error)
            message = f"a spawned process lacks {name}, which the main process sets: {text}"
            self._add(Problem(kind="lacks_global", message=message, answered=text, location=locate_raise(error)))

    def _add(self, problem: Problem) -> None:
        if problem not in self._problems:
            self._problems.append(problem)
            self.leave()

    def came_to_its_end(self, *, imports_torch: bool) -> None:
        """Note if the program, and the processes that it started, computed nothing on ``mps``."""
        started = self._processes.reports() if self._processes else []
        ops = {row.op for row in self._tally.rows} | {group.op for process in started for group in process.groups}
        if ops <= _MOVES and not any(process.forked for process in started):
            moved = "tensors were moved to mps, and nothing was computed there"
            message = moved if ops else f"no tensor reached mps: {self._why_nowhere(imports_torch=imports_torch)}"
            self._problems.append(Problem(kind="nothing_on_mps", message=message))

    def _why_nowhere(self, *, imports_torch: bool) -> str:
        if self._processes and self._processes.is_any_unemulated:
            return "the program started other processes, and opcheck emulates nothing there"
        if not imports_torch:
            return "the program did not import torch"
        calls = self._mac.elsewhere if self._mac else 0
        if not calls:
            return (
                "the program made no tensor at all (its work may wait for an argument, or for a function to be called)"
            )
        return f"the program made {plural(calls, 'operator call')} on the CPU, and moved nothing"

    def broke_off(self, error: BaseException, *, only_macs: bool = False) -> None:
        """Note that an exception ended the program; with ``only_macs`` none that is the program's own."""
        self._complete = False
        if isinstance(error, platform.SignalledError):
            text = f"{platform.signal_name(error.number)} ended the program"
            self._problems.append(Problem(kind="program_raised", message=text))
            return
        ends = "" if kind_on_a_mac(error) else endings.kind_of(error)
        if ends:
            self._problems.append(endings.problem_of(error, ends, locate_raise(error)))
            return
        kind = origin_on_a_mac(error) if isinstance(error, (Exception, SystemExit)) else ""
        if not kind and (endings.is_refused_by_torch(error) or endings.is_unpicklable(error)):
            kind = REFUSED_EVERYWHERE
        if only_macs and not kind and not isinstance(error, ProcessAbortedError):
            return
        if isinstance(error, SystemExit):
            self._problems.append(Problem(kind=kind or "program_exited", message=_exit_text(error)))
            return
        text = type_and_text(error)
        shared = kind == REFUSED_EVERYWHERE
        message = f"a Mac raises this, too: {text}" if shared else f"the program ended with {text}"
        kind, answered = kind or _kind_of_end(error), text if shared else ""
        self._problems.append(Problem(kind=kind, message=message, location=locate_raise(error), answered=answered))


def _kind_of_end(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError):
        return "module_missing"
    return "process_died" if isinstance(error, ProcessAbortedError) else "program_raised"


def _exit_text(error: SystemExit) -> str:
    if error.code is None or isinstance(error.code, int):
        return f"the program ended itself with exit code {error.code}"
    # Python prints what is no number, and exits with 1.
    return f"the program ended itself with exit code 1: {one_line(error)}"


@contextlib.contextmanager
def emulate(
    torch: str | None = None,
    macos: str | None = None,
    *,
    fallback: bool = False,
    name: str = "emulated block",
    kernels: KernelsMode = "",
) -> Iterator[Emulation]:
    """Emulate a Mac for the length of a block: ``mps`` is then a device of this process.

    Its tensors hold real values, which this machine's CPU computes: the block shows that a program
    runs, with the Mac's own errors and warnings, not that a Mac computes the same numbers. Nothing
    is observed on a Mac.

    Args:
        torch: the release to follow, as ``2.13``; the newest in the lists if not given.
        macos: the Mac's macOS, as ``15``; the newest known if not given.
        fallback: PYTORCH_ENABLE_MPS_FALLBACK=1 is set on it.
        name: what the report calls the block.
        kernels: ``shadow`` computes the calls by the release's own Metal kernels, too, and compares them (the report's
            ``numbers``); with ``replace`` the block continues with their results.

    Raises:
        UsageError: not a version, or another such block is running.
        UnknownTargetError: there is no list for that release, or it does not run on that macOS.

    Example:
        >>> with opcheck.emulate(torch="2.13", macos="15") as run:  # doctest: +SKIP
        ...     torch.ones(2, device="mps").sum()
        >>> print(run.report)  # doctest: +SKIP
    """
    lists = load()
    with named_by_keyword({"torch": "torch", "macos": "macos"}):
        mac = targets.target(torch, macos, lists, fallback=fallback)
    run = Emulation(mac, lists, name, kernels)
    with run.running():
        try:
            yield run
        except BaseException as error:
            run.broke_off(error)
            raise
