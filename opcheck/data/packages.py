"""What installs on a Mac: torch's wheels by version of Python, and the packages that have no macOS wheel."""

import functools
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from opcheck.common.versions import Span, Version
from opcheck.data.tables import ListFile
from opcheck.model.records import Record


class OnMacs(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a Mac has in place of a package."""

    #: a package, a function or a way to write it
    use: str
    #: whether it runs by Metal kernels, by operators of torch, or on the CPU
    kind: Literal["metal", "torch", "cpu"]
    #: how its interface differs
    differs: str


class Package(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution that does not install on a Mac as it does on a CUDA machine."""

    #: names that it is imported by
    imports: tuple[str, ...]
    #: the alternative to a wheel, and the first version that has a wheel.
    instead: str
    on_macs: OnMacs
    evidence: str
    #: the day when the alternative was looked up
    date: str
    #: the first version with a macOS wheel; empty: none
    since: str = ""
    #: whether its sources install on a Mac, without CUDA
    sources: bool = False
    #: how it fails on a Mac, where it installs; its import does not fail
    fails: str = ""
    #: the dependency that pip does not find for a Mac, where its own wheel is for every platform
    needs: str = ""
    #: what messages of other libraries call it
    named: tuple[str, ...] = ()


#: What weights become on a Mac: they load as they are, are cast when they are loaded, raise then or at the first call,
#: compute on the CPU, or give wrong numbers.
Becomes = Literal["loads", "casts", "raises_at_load", "raises_at_run", "runs_on_cpu", "wrong", "unknown"]


class StorageMethod(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to store weights with fewer bits, or a kernel of the hub, and what becomes of it on a Mac."""

    outcome: Becomes
    because: str
    instead: str
    evidence: str
    #: the day when the evidence was read
    date: str
    #: what a Mac prints, where it raises
    prints: str = ""
    #: the package and its first version of which the outcome was seen
    since: str = ""
    #: the releases of torch that the package works with; with others the outcome is unknown
    torch: Span = Span()
    #: operators that decide on MPS, each with a dtype
    calls: tuple[tuple[str, str], ...] = ()
    #: whether the tensors keep their stored dtypes on the GPU and are cast there
    keeps: bool = False
    #: of ``use_kernels``: names of the layers that it replaces on a Mac
    layers: tuple[str, ...] = ()


class Packages(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The content of ``packages.yaml``."""

    schema: int
    by_name: Mapping[str, Package] = msgspec.field(name="packages")
    #: by the name in ``quantization_config``
    methods: Mapping[str, StorageMethod]
    #: kernels of the hub, by the name of their repository, and ``use_kernels``
    kernels: Mapping[str, StorageMethod]

    @functools.cached_property
    def by_import(self) -> Mapping[str, str]:
        """The names of the distributions, by the modules that they are imported as."""
        return {module: name for name, package in self.by_name.items() for module in package.imports}


class PythonWheels(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The spans of torch release lines that have a wheel for macOS: ``pythons.yaml``."""

    schema: int
    date: str
    #: for Intel Macs, whatever the Python
    intel: Span
    spans: dict[Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+$")], Span] = msgspec.field(name="pythons")

    @functools.cached_property
    def by_python(self) -> Mapping[Version, Span]:
        """The spans for Apple silicon, by the version of Python."""
        return {Version.parse(name): span for name, span in self.spans.items()}

    def pythons(self, torch: Version) -> tuple[Version, ...]:
        """Return the Python versions that a release has wheels for, the oldest first."""
        return tuple(sorted(version for version, span in self.by_python.items() if torch in span))


PACKAGES = ListFile("packages.yaml", Packages)
PYTHONS = ListFile("pythons.yaml", PythonWheels)
