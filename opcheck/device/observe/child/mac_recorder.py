"""Records, in the process of the program, each call on mps with its line, and each warning."""

import contextlib
import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch

from opcheck.common.replacing import replace_attributes
from opcheck.common.vocabulary import Phase
from opcheck.device.observe.recording import RecordedRow, Warned
from opcheck.model.records import SourceLocation
from opcheck.tracing.call_sites import ProgramStack, Trail
from opcheck.tracing.source_locations import Site, UserFrames, locate
from opcheck.tracing.torch_private import dispatch
from opcheck.tracing.torch_private.trees import tensors
from opcheck.worker.protocol import seal

#: The warnings to record each time: those of MPSFallback.mm and of kernels that leave for the CPU.
WANTED = ("on the MPS backend and will fall back", "MPS: ", "falling back to CPU", "supported by MPS")

_DEVICE = "mps"
_TENSORS = 12
#: So many forward calls are kept for their backward; then all of them are forgotten.
_REMEMBERED = 1_000_000


class MacRecorder(dispatch.DispatchMode):
    """Records each call; a row is written before its first call, so that it outlives an abort."""

    def __init__(self, write: Callable[[Any], None], mark: int | None = None) -> None:
        super().__init__()
        self._write = write
        #: the file descriptor for the marks around calls; None writes no marks
        self._mark = mark
        self._process = os.getpid()
        self._modules = ProgramStack()
        self._trail = Trail()
        self._noted = 0
        self._rows: dict[tuple[Any, ...], int] = {}
        self._frames = UserFrames()
        self._warned: Counter[tuple[str, SourceLocation | None]] = Counter()
        self._lock = threading.Lock()
        self.counts: Counter[int] = Counter()
        #: the row whose call raised last, and the exception
        self.raised: tuple[int, BaseException] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Make the call between two marks; count it if a tensor of it is on the device."""
        del types
        kwargs = kwargs or {}
        if os.getpid() != self._process:
            # A worker that the program forked: its calls are no part of this process's marks.
            return func(*args, **kwargs)
        number = self._number(func, args, kwargs)
        self._say(number, "<")
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self.raised = (number, error)
            raise
        finally:
            self._say(number, ">")
        if number:
            self.counts[number] += 1
        return result

    @property
    def warned(self) -> tuple[Warned, ...]:
        """The warnings, equal ones counted, in order."""
        return tuple(
            Warned(text=text, location=location, count=count) for (text, location), count in self._warned.items()
        )

    def warn(self, message: Any, site: tuple[str, int]) -> bool:
        """Record a warning of MPS; return whether it is the first of its text and line."""
        text = str(message)
        location = locate(self._frames.innermost(sys._getframe(1)))
        if location is None and site[0]:
            location = SourceLocation(file=site[0], line=site[1])
        with self._lock:
            self._warned[text, location] += 1
            return self._warned[text, location] == 1

    def _number(self, func: Any, args: Any, kwargs: dict[str, Any]) -> int:
        """The row of the call; 0 if the call neither uses nor makes a tensor on the device."""
        inputs = tensors((args, kwargs))
        devices = tuple(sorted({tensor.device.type for tensor in inputs}))
        asked = kwargs.get("device")
        if _DEVICE not in devices and (asked is None or torch.device(asked).type != _DEVICE):
            return 0
        dtypes = tuple(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in inputs}))
        site, module, phase = self._where()
        name = f"{func.namespace}::{dispatch.schema_of(func).name.partition('::')[2]}"
        overload = dispatch.overload_name_of(func)
        op = name if overload == "default" else f"{name}.{overload}"
        key = (op, dtypes, devices, site, module, phase)
        with self._lock:
            if (number := self._rows.get(key)) is None:
                number = self._rows[key] = len(self._rows) + 1
                shapes = tuple(tuple(map(int, tensor.shape)) for tensor in inputs[:_TENSORS])
                devices = devices or (_DEVICE,)
                row = RecordedRow(number=number, op=op, dtypes=dtypes, devices=devices, shapes=shapes)
                self._write(msgspec.structs.replace(row, location=locate(site), module=module, phase=phase))
        return number

    def _where(self) -> tuple[Site, str, Phase]:
        """The line, module and phase; those of a call of backward are its forward call's."""
        site = self._frames.innermost(sys._getframe(1))
        module, phase = self._modules.where()
        if phase == "backward":
            forward_site, forward_module = self._trail.of_running_node()
            return (forward_site, forward_module, phase) if forward_site else (site, module, phase)
        self._noted += 1
        if self._noted > _REMEMBERED:
            self._trail, self._noted = Trail(), 0
        self._trail.note((site, module))
        return site, module, phase

    def _say(self, number: int, which: str) -> None:
        if self._mark is None or not number:
            return
        try:
            os.write(self._mark, f"\x1e{number}{which}\x1e".encode())
        except OSError:
            # The program closed its stderr: no more marks can be written.
            self._mark = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """For the length of the block the program's calls and warnings are noted."""
        before = warnings.showwarning

        def show(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
            if not any(part in str(message) for part in WANTED) or self.warn(message, (filename, lineno)):
                before(message, category, filename, lineno, *rest)

        with replace_attributes([(warnings, "showwarning", show)]), self._modules.follow_modules(), self:
            yield


def lines_to(path: str, secret: str) -> Callable[[Any], None]:
    """What writes each record to the file at once: an abort takes nothing back."""
    file = open(path, "ab", buffering=0)  # noqa: SIM115, PTH123 - as long as the process lives

    def write(line: Any) -> None:
        file.write(seal(line, secret))

    return write
