"""Requests to the probing process and its answers; all travel as JSON."""

from opcheck.common.yaml_text import load_shipped
from opcheck.data.device_evidence import Machine, Phase, Result
from opcheck.model.records import Record

#: The dtypes of PyTorch's own tests of MPS (test/test_mps.py).
DTYPES: tuple[str, ...] = tuple(load_shipped(__file__, "dtypes.yaml"))


class Setup(Record, frozen=True, kw_only=True):
    """The first request to a process: where, and which of the operators."""

    device: str
    samples: int
    #: names of OpInfos, as fnmatch reads them; none: all
    patterns: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = DTYPES
    phases: tuple[Phase, ...] = ("forward",)


class ProbeTask(Record, frozen=True, kw_only=True, order=True):
    """One OpInfo with one dtype."""

    opinfo: str
    dtype: str
    phase: Phase

    @property
    def key(self) -> tuple[str, str, str]:
        """The key, equal to that of its result."""
        return self.opinfo, self.dtype, self.phase


class ProbeTrial(Record, frozen=True, kw_only=True):
    """The request to do one task of a setup."""

    setup: Setup
    task: ProbeTask


class Ready(Record, frozen=True, kw_only=True, tag="ready"):
    """The answer to a setup: the machine, and all that there is to do."""

    machine: Machine
    tasks: tuple[ProbeTask, ...]


class ProbeDone(Record, frozen=True, kw_only=True, tag="done"):
    """The answer to a trial."""

    result: Result
