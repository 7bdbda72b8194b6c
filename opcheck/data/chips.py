"""What Apple's chips compute and move in a second, and how the time of operator calls follows from that."""

import functools
import re

from opcheck.data.statement_model import EvidenceEntries
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import ListFile
from opcheck.model.records import Record

#: The dtypes that matrix units of the GPU take.
_HALF = frozenset({"float16", "bfloat16"})
#: 10^9 bytes a second that a cluster of performance cores reaches at most.
_CLUSTER = 110.0


class Gpu(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GPU of a chip with a number of cores."""

    cores: int
    #: 10^12 operations a second in float32; in float16 and bfloat16 by matrix units, 0 without them
    tflops: float
    half: float = 0.0
    #: 10^9 bytes a second of the memory, which the CPU shares
    gb_s: float

    def flops(self, dtype: str, bfloat16: float) -> float:
        """Return the operations a second of matrix products and convolutions in a dtype.

        Args:
            dtype: of the operands.
            bfloat16: the rate of that dtype, as a share of the rate of float32.
        """
        if self.half and dtype in _HALF:
            return self.half * 1e12
        return self.tflops * 1e12 * (bfloat16 if dtype == "bfloat16" else 1)


class Cpu(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The performance cores of a chip."""

    cores: int
    #: each has one matrix unit
    clusters: int
    ghz: float

    def flops(self, dtype: str) -> float:
        """Return the operations a second of the matrix units in float32, of the vector units in other dtypes."""
        # 16 x 16 multiply-adds a cycle and cluster; four vectors of 16 bytes a cycle and core.
        per_cycle = self.clusters * 512 if dtype == "float32" else self.cores * 32
        return per_cycle * self.ghz * 1e9

    def bandwidth(self, memory: float) -> float:
        """Return the bytes a second that the cores reach of a memory with so many 10^9 bytes a second."""
        return min(memory, self.clusters * _CLUSTER) * 1e9


class Chip(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chip, with each GPU that it is sold with."""

    gpus: tuple[Gpu, ...]
    bfloat16: float = 1.0
    cpu: Cpu


class _ChipTable(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    evidence: EvidenceEntries
    chips: dict[str, Chip]


class Copy(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A copy between the CPU and the GPU."""

    seconds: float
    gb_s: float
    evidence: EvidenceEntries


class Starts(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The seconds that a call adds to those of Python and the dispatcher, by its route, at 3.2 GHz."""

    graph: float
    metal: float
    evidence: EvidenceEntries


class Speed(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The content of ``speed.yaml``."""

    schema: int
    families: dict[str, tuple[str, ...]]
    starts: Starts
    copy: Copy
    #: how many times the time of its bytes a call without a formula may take
    widening: float

    @functools.cached_property
    def patterns(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        """Return a pattern of overloads for each family, in the order of the file."""
        return tuple(
            (re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names)), family)
            for family, names in self.families.items()
        )


class Parameters(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What scripts/calibrate_time.py fits: shares of the published rates, and seconds."""

    gpu_matrix: float
    gpu_convolution: float
    gpu_memory: float
    #: of the bandwidth, for reads and writes at indices
    gpu_index: float
    cpu_matrix: float
    cpu_memory: float
    #: seconds of Python and the dispatcher for a call, whatever computes it, at 3.2 GHz
    host: float
    #: seconds from the end of the GPU's work to the CPU's next step
    wait: float
    #: binary logarithms of the ends of an interval as shares of its middle: where the GPU computes, where it reads and
    #: writes, where the CPU starts calls, waits or copies, and of the same calls on the CPU
    compute_spread: float
    memory_spread: float
    launch_spread: float
    cpu_spread: float


class _Fit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    parameters: Parameters


def _check_chips(document: Document, content: _ChipTable) -> None:
    for name, chip in content.chips.items():
        cores = [gpu.cores for gpu in chip.gpus]
        if not cores or cores != sorted(set(cores)):
            document.report(("chips", name, "gpus"), "one entry a number of cores, the fewest first")


CHIPS = ListFile("chips.yaml", _ChipTable, check=_check_chips)
SPEED = ListFile("speed.yaml", Speed)
FIT = ListFile("speed_fit.json", _Fit, made_by="python -m scripts.calibrate_time fit")
