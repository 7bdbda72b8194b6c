"""The jobs of a gate, several at a time, each in a process of its own; what is done stays done when one dies."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait

import msgspec

from opcheck.project.gate.records import Failed
from opcheck.project.gate.work import Job, Result, work
from opcheck.worker.children import end_with_parent, how_it_ended, leave_safe_path, safe_path

#: seconds that an interrupted job gets to end its own child process: until it is told again, until it is killed.
_PATIENCE = (0.5, 5.0)

_RESULT = msgspec.msgpack.Decoder(Result)


def run(
    jobs: Sequence[Job],
    at_once: int,
    done: Callable[[int, Result], None],
    say: Callable[[int, str], None],
) -> None:
    """Do all jobs; a job that dies is a result as well.

    Args:
        jobs: what is to be done.
        at_once: how many processes; with one, the jobs run here, one after the other.
        done: told the number of a job and its result as soon as it is there.
        say: told the number of a job and what it does.

    Raises:
        KeyboardInterrupt: somebody interrupted; what ``done`` was told stands, and no process is left.
    """
    if min(at_once, len(jobs)) <= 1:
        for number, job in enumerate(jobs):
            result = work(job, lambda text, number=number: say(number, text))  # type: ignore[misc]
            # As it would come from another process, or out of the cache.
            done(number, _RESULT.decode(msgspec.msgpack.encode(result)))
        return
    waiting = iter(enumerate(jobs))
    running: dict[Connection, _Running] = {}
    try:
        while True:
            while len(running) < at_once and (following := next(waiting, None)) is not None:
                started = _Running(*following)
                running[started.answers] = started
            if not running:
                return
            for answers in wait(list(running)):
                assert isinstance(answers, Connection)
                _hear(running, answers, done, say)
    finally:
        for left in running.values():
            left.end()


class _Running:
    """A job that is being done."""

    def __init__(self, number: int, job: Job) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.answers, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_child, args=(job, theirs), daemon=False)
        with _ctrl_c_waits(), safe_path():
            self.process.start()
        theirs.close()

    def end(self) -> None:
        """Interrupt it, so that it ends its own child; then kill it."""
        self.answers.close()
        for seconds in _PATIENCE:
            self.process.join(seconds)
            if self.process.pid is not None and self.process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process.pid, signal.SIGINT)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _hear(
    running: dict[Connection, _Running],
    answers: Connection,
    done: Callable[[int, Result], None],
    say: Callable[[int, str], None],
) -> None:
    one = running[answers]
    try:
        answer: str | bytes = answers.recv()
    except EOFError:
        del running[answers]
        one.process.join()
        done(one.number, _died(one.process.exitcode))
        return
    if isinstance(answer, str):
        say(one.number, answer)
        return
    del running[answers]
    one.process.join()
    done(one.number, _RESULT.decode(answer))


def _child(job: Job, answers: Connection) -> None:
    """What the process of a job does."""
    end_with_parent()
    leave_safe_path()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        answers.send(msgspec.msgpack.encode(work(job, answers.send)))


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Ctrl-C is heard behind the block; what is started in it hears it as soon as it knows what to do."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _died(code: int | None) -> Result:
    return Result(
        failed=Failed(
            message=f"the process that audited the model {how_it_ended(code or 0)}",
            hint="run opcheck audit on it, with -v",
        )
    )
