"""The request of an observation, and the records that the process leaves behind; both travel as JSON."""

from opcheck.common.vocabulary import Phase
from opcheck.device.emulator.emulation_request import ProgramRequest
from opcheck.model.records import Record, SourceLocation


class ObserveRequest(ProgramRequest, frozen=True, kw_only=True):
    """One program, to be run on this machine's own device; it writes line by line."""

    #: To test the observation: the emulated Mac, as ``2.13/15``, in place of the device.
    stand_in: str = ""
    #: the emulated Mac whose kernels it has, where they are to contradict what is predicted
    kernels: str = ""


class Start(Record, frozen=True, kw_only=True, tag="start"):
    """The first line: what the program runs on."""

    torch: str
    macos: str
    #: as ``platform.machine`` and sysctl name it
    machine: str
    #: build of macOS, as sw_vers names it
    build: str = ""


class RecordedRow(Record, frozen=True, kw_only=True, tag="row"):
    """The calls of an overload from a line, with the same dtypes and devices.

    The row is written before the first of them is made.
    """

    number: int
    op: str
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    #: of the first call
    shapes: tuple[tuple[int, ...], ...] = ()
    location: SourceLocation | None = None
    module: str = ""
    phase: Phase = "forward"


class Warned(Record, frozen=True, kw_only=True, tag="warned"):
    """A warning of a CPU fallback, or of a kernel of MPS; equal warnings are counted."""

    text: str
    location: SourceLocation | None = None
    count: int = 1


class End(Record, frozen=True, kw_only=True, tag="end"):
    """The last line; there is none where the process was ended from outside."""

    exit_code: int
    #: calls by the numbers of their rows
    counts: dict[int, int] = {}
    warned: tuple[Warned, ...] = ()
    #: of the exception that left the program
    error: str = ""
    message: str = ""
    location: SourceLocation | None = None
    #: number of the row whose call raised it; 0: none
    row: int = 0


Line = Start | RecordedRow | End
