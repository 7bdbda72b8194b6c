"""What a Mac printed: a record for each text, and the kinds of texts that there are."""

from __future__ import annotations

from typing import NamedTuple

from opcheck.common.versions import Span
from opcheck.common.vocabulary import Confidence
from opcheck.model.records import Record, SourceLocation

#: The operator of a text that names none.
NOT_NAMED = "(operator not named)"
#: The strongest of model.CONFIDENCES.
CONFIDENCE: Confidence = "observed"


class Kind(NamedTuple):
    """What a text of this kind means."""

    #: as a report describes it
    meaning: str
    #: The text ends a call, or the process.
    ends: bool = False
    #: A traceback, or the place of a warning, leads to the text.
    placed: bool = False
    #: the name by which the rules know a refusal (judge/rules/oc101_unsupported_call.py)
    refusal: str = ""


#: The kinds of texts; the last block is what only the profiler and the allocator print.
KINDS = {
    "fallback": Kind("an operator without a kernel ran on the CPU", placed=True),
    "detour": Kind("a registered kernel left for the CPU", placed=True),
    "warned": Kind(
        "a kernel warned: it narrows a dtype, or does not follow an argument", placed=True
    ),
    "no_kernel": Kind("an operator without a kernel raised", ends=True, placed=True),
    "no_cpu_kernel": Kind(
        "neither MPS nor the CPU has a kernel, and it raised", ends=True, placed=True
    ),
    "refused": Kind("a registered kernel raised", ends=True, placed=True),
    "no_cuda": Kind(
        "the program asks for a device that no Mac has", ends=True, refusal="cuda_required"
    ),
    "device_mix": Kind(
        "a kernel was given a tensor that is not on mps",
        ends=True,
        placed=True,
        refusal="device_mismatch",
    ),
    "out_of_memory": Kind(
        "an allocation was refused", ends=True, placed=True, refusal="out_of_memory"
    ),
    "aborted": Kind(
        "Metal, or its compiler, ended the process", ends=True, refusal="process_aborted"
    ),
    "gpu_error": Kind(
        "the GPU gave a command buffer back with an error", ends=True, refusal="gpu_error"
    ),
    "compile_failed": Kind(
        "Metal refused a kernel that torch.compile wrote",
        ends=True,
        placed=True,
        refusal="shader_refused",
    ),
    "setting": Kind(
        "an environment variable, or a setting, was refused",
        ends=True,
        placed=True,
        refusal="setting_refused",
    ),
    "operation": Kind("a graph or a kernel of Metal's was run"),
    "copy": Kind("memory was copied"),
    "fallback_run": Kind("one run of an operator on the CPU, as the profiler prints it"),
    "fallback_total": Kind("all runs of an operator on the CPU, as the profiler sums them up"),
    "operation_total": Kind("all runs of a graph or kernel, as the profiler sums them up"),
    "copy_total": Kind("all copies of one kind, as the profiler sums them up"),
    "allocator": Kind("the allocator took, reused or gave back memory"),
}

#: The kinds that end a call, or the process.
ENDS = frozenset(name for name, kind in KINDS.items() if kind.ends)


class LogEvent(Record, frozen=True, kw_only=True):
    """A text that a Mac printed, and what it says."""

    #: a name of KINDS
    kind: str
    #: The operator as the text names it, or empty; the profiler leaves out the overload.
    op: str = ""
    #: the releases that print this wording
    torch: Span = Span()
    #: ids of the curated statements that quote the text
    statements: tuple[str, ...] = ()
    #: the program's own line that led there, where the log has it
    location: SourceLocation | None = None
    #: sizes in bytes, times in ms, counts
    numbers: dict[str, int | float] = {}
    words: dict[str, str] = {}
    #: PyTorch's file that prints it; empty where it is Apple's
    source: str = ""
    #: the printed line, without what logs put before it
    text: str = ""
    log: str = ""
    line: int = 0
    #: the recorder's number of the call during which it was printed; 0 where that is unknown
    call: int = 0

    @property
    def where(self) -> str:
        """``log:line``."""
        return f"{self.log}:{self.line}"
