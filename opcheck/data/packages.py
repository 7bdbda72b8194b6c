"""The packages that have no macOS wheel, and what a Mac makes of quantized weights: ``op_lists/packages.yaml``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from opcheck.common.errors import OpListError
from opcheck.data.registrations import data_directory
from opcheck.data.strict_yaml import read
from opcheck.model.records import Record

FILE = "packages.yaml"


class Package(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A distribution that does not install on a Mac as it does on a CUDA machine."""

    #: names that it is imported by
    imports: tuple[str, ...]
    #: the alternative to a wheel, and the first version that has a wheel.
    instead: str
    evidence: str
    #: the day on which the alternative was looked up
    date: str
    #: the first version with a macOS wheel; empty: none
    since: str = ""
    #: whether its sources install on a Mac, without CUDA
    sources: bool = False
    #: what messages of other libraries call it
    named: tuple[str, ...] = ()


class Method(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to store weights with fewer bits, or a kernel of the hub, and what becomes of it on a Mac."""

    #: ``dequantizes``: the weights become dense when they are loaded
    outcome: Literal["dequantizes", "fails", "unknown"]
    because: str
    instead: str
    evidence: str
    #: the day on which the evidence was read
    date: str
    #: of ``use_kernels``: names of the layers that it replaces on a Mac
    layers: tuple[str, ...] = ()


class Packages(Record, frozen=True, kw_only=True):
    """The content of the file, by distribution name and by module name."""

    by_name: Mapping[str, Package]
    by_import: Mapping[str, str]
    #: by the name in ``quantization_config``
    methods: Mapping[str, Method]
    #: kernels of the hub, by the name of their repository, and ``use_kernels``
    kernels: Mapping[str, Method]


@functools.cache
def packages(directory: Path | None = None) -> Packages:
    """Read the file, once per directory.

    Raises:
        OpListError: it is missing or damaged; all of its problems are named.
    """
    path = (directory or data_directory()) / FILE
    document = read(path, FILE)
    value: Any = document.value if isinstance(document.value, dict) else {}
    keys = {"schema", "packages", "methods", "kernels"}
    if not document.problems and (value.keys() != keys or value["schema"] != 1):
        document.report((), "a mapping with schema: 1, packages, methods and kernels is expected")
    by_name: dict[str, Package] = {}
    methods: dict[str, Method] = {}
    kernels: dict[str, Method] = {}
    try:
        by_name = msgspec.convert(value.get("packages"), dict[str, Package])
        methods = msgspec.convert(value.get("methods"), dict[str, Method])
        kernels = msgspec.convert(value.get("kernels"), dict[str, Method])
    except msgspec.ValidationError as error:
        document.report(("packages",), str(error))
    if document.problems:
        raise OpListError(
            "\n".join(map(str, document.problems)), context=str(path), hint="correct the file"
        )
    by_import = {module: name for name, package in by_name.items() for module in package.imports}
    return Packages(by_name=by_name, by_import=by_import, methods=methods, kernels=kernels)
