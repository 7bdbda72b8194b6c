"""Records of running kernels, which travel from the child process that ran them."""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

#: `right`: every result is the reference rounded, or its neighbour.  `within`: some differ by no
#: more than is allowed to the functions in it.  `wrong`: some differ by more.  `depends on fusing`: some differ by
#: more where a multiplication and an addition are fused, or where they are not.  `depends on flushing`: some differ by
#: more where denormal numbers become zero, and none where they are kept.  `not run`: the reason is there.
Verdict = Literal["right", "within", "wrong", "depends on fusing", "depends on flushing", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a kernel whose result is wrong: grossly, or in digits alone."""

    inputs: tuple[str, ...]
    result: str
    expected: str
    gross: bool = True


class KernelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of running one kernel."""

    kernel: str
    family: str
    operation: str
    dtypes: tuple[str, ...]
    verdict: Verdict
    #: results that were compared, and those that are wrong.
    compared: int = 0
    wrong: int = 0
    #: the largest difference of a result that is not wrong, in units in the last place.
    ulps: float = 0.0
    #: the simplest input with a wrong result.
    smallest: Sample | None = None
    #: that whose result is furthest off, and for each operand the range of its values where results are wrong.
    worst: Sample | None = None
    ranges: tuple[str, ...] = ()
    #: the share that is wrong of random inputs of a usual size, 1e-3 to 1e3; None where none were tried.
    usual: float | None = None
    #: the first release whose kernel of this name is wrong, of those that were looked at.
    since: str = ""
    #: why it was not run, or what else is to be known.
    reason: str = ""
    #: of this machine's processor.
    seconds: float = 0.0


def extent(group: Sequence[KernelOutcome]) -> tuple[str, str, str]:
    """Return for wrong kernels of an operation the range of inputs, the share of usual ones, and the worst result."""
    ranges = next((outcome.ranges for outcome in group if outcome.ranges), ())
    usual = max((outcome.usual for outcome in group if outcome.usual is not None), default=None)
    worst = next((outcome.worst for outcome in group if outcome.worst), None)
    example = f"{', '.join(worst.inputs)} gives {worst.result}, right {worst.expected}" if worst else ""
    return "; ".join(ranges), "" if usual is None else f"{usual:.2%}", example


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that share inputs and references: those of one operation."""

    family: str
    operation: str
    kernels: tuple[str, ...]


class KernelRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run over a release: all outcomes."""

    torch: str
    section: str
    seed: int
    seconds: float
    outcomes: tuple[KernelOutcome, ...]
    #: what ended the run before all kernels had run, and how many had not.
    ended: str = ""
    lacking: int = 0


class KernelSource(msgspec.Struct, frozen=True, kw_only=True):
    """The place of the kernels for a child process: the library, and the folders of wheels and compiled code."""

    release: str
    section: str
    wheels: str
    cache: str


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The request to run one kernel; its task is sent without the names of the others."""

    source: KernelSource
    task: Task
    kernel: str
