"""What one release's OpInfo run leaves behind: the CI's expectations and the calls on the simulated Mac.

Kept outside of the repository (``~/.cache/opcheck/opinfo``), so that a changed limitation is judged again without
that release installed; what the repository holds is derived from it.
"""

import gzip
import os
from pathlib import Path

import msgspec

from opcheck.common.versions import Version
from opcheck.model.records import OpCall
from scripts.opinfo import evaluation as opinfo

#: forward results, and gradients.
PASSES = opinfo.PASSES

#: macOS versions for which the lists are evaluated, and the one that is simulated.
MACOS = ("14.0", "15.0", "26.0")
SIMULATED_MACOS = "15.0"

#: The dtypes that test/test_mps.py runs through, by the names of opcheck.common.names.DTYPES.
DTYPES = (
    *("float32", "float16", "bfloat16"),
    *("int8", "int16", "int32", "int64", "uint8", "bool"),
    *("complex64", "complex32"),
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One OpInfo with one dtype on the simulated Mac: its distinct calls, and what went wrong."""

    samples: int
    calls: tuple[OpCall, ...] = ()
    failures: tuple[str, ...] = ()


class Body(msgspec.Struct, kw_only=True):
    """What a composite was seen to call: how often it was entered, and in how many of these each leaf was met."""

    entered: int = 0
    leaves: dict[str, int] = {}

    @property
    def calls(self) -> tuple[list[str], list[str]]:
        """The leaves that each call met, and those that some did."""
        always = sorted(op for op, times in self.leaves.items() if times == self.entered)
        return always, sorted({*self.leaves} - {*always})


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """One OpInfo."""

    api: str
    aliases: tuple[str, ...] = ()
    #: macOS -> pass -> dtype -> pass, xfail or skip
    ci: dict[str, dict[str, dict[str, str]]]
    #: pass -> dtype -> run
    runs: dict[str, dict[str, Run]]
    #: overloads that the API call itself enters, below autograd.
    enters: tuple[str, ...] = ()


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One release."""

    torch: str
    line: str
    samples: int
    opinfos: dict[str, Info]
    #: release line of the registrations -> composite overload -> what it calls
    composites: dict[str, dict[str, Body]]


def cache() -> Path:
    """Where recordings are kept; ``OPCHECK_CACHE`` names another directory."""
    base = os.environ.get("OPCHECK_CACHE")
    return (Path(base) if base else Path.home() / ".cache" / "opcheck") / "opinfo"


def save(recording: Recording) -> Path:
    """Write a recording; the same one gives the same bytes."""
    path = cache() / f"{recording.line}.msgpack.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(msgspec.msgpack.encode(recording), compresslevel=6, mtime=0))
    return path


def recorded() -> list[str]:
    """The release lines that are recorded on this machine, in the order of their releases."""
    names = (path.name.partition(".msgpack")[0] for path in cache().glob("*.msgpack.gz"))
    return sorted(names, key=Version.parse)


def read(line: str) -> Recording:
    """The recording of a release line.

    Raises:
        OSError: it was not made on this machine (scripts/run_opinfo_all.py makes it).
    """
    raw = gzip.decompress((cache() / f"{line}.msgpack.gz").read_bytes())
    return msgspec.msgpack.decode(raw, type=Recording)
