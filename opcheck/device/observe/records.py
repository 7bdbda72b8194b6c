"""What was read in a log: one record a printed text."""

from __future__ import annotations

from opcheck.common.versions import Span
from opcheck.model.records import Record, SourceLocation

#: What a sighting says of the operator that it is about, or of the process.
KINDS = {
    "fallback": "an operator without a kernel ran on the CPU",
    "detour": "a registered kernel left for the CPU",
    "no_kernel": "an operator without a kernel raised",
    "no_cpu_kernel": "neither MPS nor the CPU has a kernel, and it raised",
    "refused": "a registered kernel raised",
    "no_cuda": "the program asks for a device that no Mac has",
    "device_mix": "a kernel was given a tensor that is not on mps",
    "out_of_memory": "an allocation was refused",
    "aborted": "Metal, or its compiler, ended the process",
    "gpu_error": "the GPU gave a command buffer back with an error",
    "compile_failed": "Metal refused a kernel that torch.compile wrote",
    "setting": "an environment variable, or a setting, was refused",
    "warned": "a kernel warned: it narrows a dtype, or does not follow an argument",
    "operation": "a graph or a kernel of Metal's was run",
    "copy": "memory was copied",
    "fallback_run": "one run of an operator on the CPU, as the profiler prints it",
    "fallback_total": "all runs of an operator on the CPU, as the profiler sums them up",
    "operation_total": "all runs of a graph or kernel, as the profiler sums them up",
    "copy_total": "all copies of one kind, as the profiler sums them up",
    "allocator": "the allocator took, reused or gave back memory",
}

#: In the place of an operator, where what was printed names none.
NOT_NAMED = "(operator not named)"
#: The strongest of model.CONFIDENCES.
CONFIDENCE = "observed"

#: The kinds that end a call, or the process.
ENDS = frozenset(
    {
        "no_kernel",
        "no_cpu_kernel",
        "no_cuda",
        "refused",
        "device_mix",
        "out_of_memory",
        "aborted",
        "gpu_error",
        "compile_failed",
        "setting",
    }
)

#: The kinds that only the profiler and the allocator print.
PROFILE = frozenset(
    {
        "operation",
        "copy",
        "fallback_run",
        "fallback_total",
        "operation_total",
        "copy_total",
        "allocator",
    }
)


class Sighting(Record, frozen=True, kw_only=True):
    """One text that a Mac printed, and what it says."""

    #: one of KINDS
    kind: str
    #: the operator as the text names it; the profiler leaves out the overload.  Empty: it names none.
    op: str = ""
    #: the releases that print this wording.
    torch: Span = Span()
    #: ids of the curated statements whose text it is.
    statements: tuple[str, ...] = ()
    #: the program's own line that led there, where the log tells it.
    location: SourceLocation | None = None
    #: sizes in bytes, times in ms, counts
    numbers: dict[str, int | float] = {}
    words: dict[str, str] = {}
    #: the file in PyTorch that prints it; empty where it is Apple's.
    source: str = ""
    #: the printed line, without what logs put before it
    text: str = ""
    log: str = ""
    line: int = 0
    #: the recorder's number of the call during which it was printed; 0: not known.
    call: int = 0

    @property
    def where(self) -> str:
        """``log:line``."""
        return f"{self.log}:{self.line}"
