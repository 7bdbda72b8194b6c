"""Runs the work in threads or on a cluster, by joblib, and recovers after workers or the scheduler are lost.

A thread only waits for the server process that it starts.  A worker process between the two would be one more process
for a model to stop, and joblib waits for a stopped one without a limit.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from opcheck.common.errors import UsageError
from opcheck.features.sweep.sweep_worker import end_servers, work

#: seconds that a client gets to connect, and that workers get to come up
_CONNECT, _WORKERS = 10.0, 120
#: seconds between two checks of the connection to the scheduler
_LOOK = 0.5


class LostError(Exception):
    """Workers or the scheduler went away: tasks without a result must run again."""

    def __init__(self, why: str, *, scheduler: bool) -> None:
        super().__init__(why)
        #: whether the scheduler went away; else a worker did.
        self.scheduler = scheduler


class Engine:
    """Runs tasks by joblib; it stays usable after a loss."""

    def __init__(self, backend: str = "local", *, jobs: int = 1, scheduler: str = "") -> None:
        self.backend = backend
        self.jobs = jobs
        self.scheduler = scheduler
        self._client: Any = None

    def run(self, tasks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the results of ``work`` as the tasks finish.

        Args:
            tasks: what ``work`` takes.

        Raises:
            LostError: a worker died, or the scheduler is away.
            OpcheckError: as ``work``.
        """
        from joblib import Parallel, delayed

        end_servers()  # each run has threads of its own
        with self._backend():
            parallel = Parallel(
                n_jobs=self.jobs if self.backend == "local" else -1,
                return_as="generator_unordered",
                batch_size=1,
                pre_dispatch="n_jobs" if self.backend == "local" else "2*n_jobs",
            )
            answers = parallel(delayed(work)(task) for task in tasks)
            yield from self._watch(answers) if self.backend == "dask" else answers

    def close(self) -> None:
        """Disconnect from the scheduler, and end what the models ran in and left behind here."""
        end_servers()
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(Exception):  # it may be gone already
                client.close(timeout=2)

    def _backend(self) -> AbstractContextManager[Any]:
        if self.backend == "local":
            return _config("threading")
        return _config(
            "dask", client=self._connect(), wait_for_workers_timeout=_WORKERS, pure=False
        )

    def _connect(self) -> Any:
        """Connect to the scheduler.

        Raises:
            LostError: it cannot be reached.
        """
        from distributed import Client

        if self._client is None or self._client.status != "running":
            self.close()
            # opcheck reports a loss itself, in one line.
            for name in ("distributed", "distributed.client"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
            try:
                self._client = Client(self.scheduler, timeout=_CONNECT, set_as_default=False)
            except (OSError, TimeoutError) as error:
                raise LostError(f"{self.scheduler} does not answer", scheduler=True) from error
            except ValueError as error:
                raise UsageError(
                    f"not the address of a scheduler: {error}",
                    context=f"--scheduler {self.scheduler}",
                    hint="write it as dask prints it: tcp://host:8786",
                ) from error
        return self._client

    def _watch(self, answers: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the answers; joblib alone would wait forever for a task that its scheduler has lost."""
        arrived: queue.SimpleQueue[tuple[bytes | None, BaseException | None]] = queue.SimpleQueue()

        def fetch() -> None:
            try:
                for answer in answers:
                    arrived.put((answer, None))
                arrived.put((None, None))
            except BaseException as error:  # noqa: BLE001 - it is raised below
                arrived.put((None, error))

        client = self._client
        threading.Thread(target=fetch, daemon=True).start()
        while True:
            with contextlib.suppress(queue.Empty):
                answer, error = arrived.get(timeout=_LOOK)
                if error is not None:
                    self._raise(error)
                if answer is None:
                    return
                yield answer
                continue
            if client.status != "running":
                self.close()
                raise LostError(f"{self.scheduler} went away", scheduler=True)

    def _raise(self, error: BaseException) -> NoReturn:
        """Raise LostError for a loss, and any other exception of ``work`` unchanged."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            raise LostError("a task ended the workers that it was on", scheduler=False) from error
        if isinstance(error, (OSError, CancelledError)):
            self.close()
            raise LostError(f"{self.scheduler} went away", scheduler=True) from error
        raise error


def _config(backend: str, **options: Any) -> AbstractContextManager[Any]:
    from joblib import parallel_config

    made: AbstractContextManager[Any] = parallel_config(backend, **options)
    return made
