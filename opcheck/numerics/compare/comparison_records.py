"""The request and the result of a comparison.  Imports no torch."""

from typing import Literal

from opcheck.capture.request import CaptureRequest
from opcheck.common.vocabulary import Mode
from opcheck.data.device_evidence import Machine
from opcheck.model.records import GroupLocation, Record

SCHEMA = "opcheck-compare/2"

#: Largest difference that a dtype is allowed, as (share of the exact element, share of the result's
#: root mean square).  The numbers are those of torch.testing.assert_close (torch 2.13,
#: torch/testing/_comparison.py, ``_DTYPE_PRECISIONS``); the second is absolute there, here
#: it is relative, so that small gradients are judged, too.  In 16 bits it is as the first: terms
#: that cancel are rounded separately.
TOLERANCES = {
    **dict.fromkeys(("float16", "complex32"), (1e-3, 1e-3)),
    "bfloat16": (1.6e-2, 1.6e-2),
    **dict.fromkeys(("float32", "complex64"), (1.3e-6, 1e-5)),
    **dict.fromkeys(("float64", "complex128"), (1e-7, 1e-7)),
}
#: A result is wrong where it is farther from float64 than so many tolerances, and than so many
#: times what the CPU loses in the same dtype; less is the order of summation (of PyTorch's operator
#: database, an NVIDIA GPU has some between 1 and 4). A run on the CPU itself, which nothing can be
#: held against, is allowed TIMES tolerances.
BEYOND, TIMES = 4.0, 16.0

#: What a call comes to.
Outcome = Literal["agrees", "loose", "wrong", "not compared"]
#: What is wrong with a result.
Fault = Literal["value", "nan", "infinite", "whole number", "index", "shape"]


class ComparePlan(Record, frozen=True, kw_only=True):
    """The tasks of the child process after loading the model."""

    #: as torch.device reads it
    device: str
    #: how often each call is timed; 0: not at all
    times: int = 0
    #: folder for the first wrong call; empty: none is written
    repro: str = ""


class CompareRequest(Record, frozen=True, kw_only=True):
    """A model, and what to do with it; the target of ``capture`` is not looked at."""

    capture: CaptureRequest
    plan: ComparePlan


class Wrong(Record, frozen=True, kw_only=True):
    """All wrong calls of one operator at one line."""

    op: str
    kind: Fault
    place: GroupLocation
    #: number of its first call in the run
    first: int
    #: of its worst result: which of the operator's tensors, the dtype, and the worst element
    output: int
    dtype: str
    element: tuple[int, ...]
    found: str
    exact: str
    #: distance from float64 in tolerances, here and of the CPU in the same dtype; JSON has no word
    #: for infinite and for not known: then it is None
    error: float | None
    error_cpu: float | None
    inputs: tuple[str, ...]


class ComparedOperator(Record, frozen=True, kw_only=True):
    """All compared calls of one operator."""

    op: str
    calls: int
    #: outcome -> calls
    outcomes: dict[str, int]
    #: the largest distance from float64 of a call that is not wrong, in tolerances
    error: float | None
    #: why calls were not compared -> how many
    reasons: dict[str, int] = {}


class Time(Record, frozen=True, kw_only=True):
    """The times of an operator's calls in seconds: each the median of the repetitions, times its calls."""

    op: str
    calls: int
    device: float
    #: in the same dtype; None: the CPU has no kernel for it
    cpu: float | None

    @property
    def excess(self) -> float:
        """Seconds that the device takes more than the CPU."""
        return self.device - self.cpu if self.cpu is not None else 0.0


class Reproducer(Record, frozen=True, kw_only=True):
    """The first wrong call as a program of its own."""

    path: str = ""
    #: a text below
    state: str
    detail: str = ""


#: What a reproducer that was run came to.
SHOWS, SHOWS_NOT, FAILS = "shows the difference", "does not show it alone", "could not be run"
NOT_WRITTEN = "was not written"


class DeviceComparison(Record, frozen=True, kw_only=True):
    """One run of a model on a device, call by call against float64 on the CPU."""

    schema: str = SCHEMA
    tool: str = ""
    model: str
    machine: Machine
    dtype: str
    mode: Mode
    inputs: tuple[str, ...]
    inputs_note: str = ""
    loss: str = ""
    #: calls with a tensor on the device; outcome -> how many
    calls: int
    outcomes: dict[str, int]
    #: calls on the CPU alone, where the device is another, and views, which compute nothing
    elsewhere: int
    views: int
    #: in the order of their first calls
    wrong: tuple[Wrong, ...]
    operators: tuple[ComparedOperator, ...]
    #: the operator that lost most time first
    times: tuple[Time, ...] = ()
    reproducer: Reproducer | None = None
    #: dtype -> the two numbers of TOLERANCES
    tolerances: dict[str, tuple[float, float]]
    #: BEYOND and TIMES
    allowed: tuple[float, float] = (BEYOND, TIMES)
    #: False: the run broke off, and what follows was not seen
    complete: bool = True
    problem: str = ""
    notes: tuple[str, ...] = ()


def headline(comparison: DeviceComparison) -> str:
    """Return the answer in one line."""
    if comparison.wrong:
        mismatch = comparison.wrong[0]
        return f"{mismatch.op} is the first operator that goes wrong on {comparison.machine.device}"
    if not comparison.complete:
        return f"no operator was seen to go wrong before the run broke off on {comparison.machine.device}"
    if not comparison.outcomes.get("agrees", 0) + comparison.outcomes.get("loose", 0):
        return "nothing could be compared"
    return f"no operator goes wrong on {comparison.machine.device}"
