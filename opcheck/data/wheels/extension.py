"""Write a release of an extension library (torchvision, torchaudio) into the op lists."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import msgspec

from opcheck.common.errors import OpListError, UsageError
from opcheck.common.versions import Version
from opcheck.data.extensions import (
    FILE,
    LIBRARIES,
    VALUES,
    ExtensionCounts,
    ExtensionRelease,
    dump_extensions,
    read_extensions,
    registrations_file,
    torch_line_of,
)
from opcheck.data.files import read_history
from opcheck.data.history import SCHEMA, History, by_version, dump, with_column
from opcheck.data.wheels.archive import obtain, read_metadata
from opcheck.data.wheels.builder import write_changed
from opcheck.data.wheels.damage import open_archive
from opcheck.data.wheels.extension_library import Registered, find_registered, values
from opcheck.data.wheels.image import Image

_HINT = "give a macOS arm64 wheel of torchvision or torchaudio, or torchvision==0.28.0"
_PINNED = re.compile(r"torch\s*\(?==(?P<version>[\d.]+)")


class ExtensionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a build."""

    library: str
    release: ExtensionRelease
    #: the data files whose bytes changed, relative to the op lists' directory.
    changed: tuple[str, ...]


class ExtensionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A release and the value of each of its operators."""

    library: str
    release: ExtensionRelease
    column: Mapping[str, str]


def is_extension(source: str) -> bool:
    """Return whether a source names an extension library: ``torchvision==0.28.0``, or its wheel."""
    return re.split(r"==|-", Path(source).name)[0] in LIBRARIES


def build_extension(source: str, op_lists_dir: Path, cache: Path) -> ExtensionSummary:
    """Read a release's macOS wheel and write what it registers into the op lists.

    Args:
        source: a release such as ``torchvision==0.28.0``, or the path of a wheel.
        op_lists_dir: the directory to write to.
        cache: where downloaded wheels are kept.

    Raises:
        UsageError: ``source`` is neither.
        OpListError: no such wheel, a damaged wheel, a wheel that registers in an unknown way, or op
            lists that are damaged already.
    """
    library, _, release = source.partition("==")
    if release and library not in LIBRARIES:
        known = ", ".join(LIBRARIES)
        raise UsageError(f"not an extension library: {library}", hint=f"known are {known}")
    wheel = obtain(release, cache, library) if release else obtain(source, cache, "torchvision")
    facts = read_extension(wheel)
    changed = write_changed(_merge_release(facts, op_lists_dir), op_lists_dir)
    return ExtensionSummary(library=facts.library, release=facts.release, changed=changed)


def read_extension(path: Path) -> ExtensionFacts:
    """Read a macOS arm64 wheel of an extension library without executing any of it.

    Raises:
        OpListError: not such a wheel, damaged, or it registers in an unknown way.
    """
    about = read_metadata(path, LIBRARIES, "an extension library", _HINT)
    name, version = about.package, about.version
    line = str(Version.parse(version))
    with open_archive(path, _HINT) as wheel:
        requires = _requires(wheel, f"{name}-{version}.dist-info/METADATA")
        column, libraries = _operators(wheel, name)
    torch_line = torch_line_of(name, line)
    pinned = _PINNED.match(requires)
    if pinned and str(Version.parse(pinned["version"])) != torch_line:
        raise OpListError(
            f"{name} {version} was not released with torch {torch_line}",
            context=f"{path.name} asks for {requires}",
            hint="the numbering has changed; opcheck/data/extensions.py must learn it",
        )
    if not column:
        raise OpListError(
            "the wheel registers no operator",
            context=path.name,
            hint="it is built in another way; extension_library.py must learn it",
        )
    kinds = list(column.values())
    release = ExtensionRelease(
        version=version,
        line=line,
        torch_line=torch_line,
        requires=requires,
        wheel=path.name,
        sha256=about.sha256,
        commit=about.variables.get("git_version", ""),
        built=about.built,
        libraries=libraries,
        counts=ExtensionCounts(
            mps=kinds.count("kernel"), cpu_only=kinds.count("cpu_only"), operators=len(kinds)
        ),
    )
    return ExtensionFacts(library=name, release=release, column=column)


def _requires(wheel: ZipFile, metadata: str) -> str:
    """Return the wheel's requirement on torch; empty where it has none."""
    headers = HeaderParser().parsestr(wheel.read(metadata).decode("utf-8", "replace"))
    asked: list[str] = headers.get_all("Requires-Dist", [])
    return next((text for text in asked if re.match(r"torch\b(?![-_.])", text)), "")


def _operators(wheel: ZipFile, name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the operators of the library's namespace, and the files that register them."""
    registrations: list[Registered] = []
    libraries: list[str] = []
    with tempfile.TemporaryDirectory(prefix="opcheck-wheel-") as folder:
        for file in sorted(wheel.namelist()):
            if file.startswith(f"{name}/") and file.endswith(".so"):
                entries = find_registered(Image.parse(Path(wheel.extract(file, folder))))
                if any(entry.namespace == name for entry in entries):
                    libraries.append(file)
                    registrations += entries
    return values(name, registrations), tuple(libraries)


def _merge_release(facts: ExtensionFacts, op_lists_dir: Path) -> dict[str, str]:
    """Return the text of each data file with the release added."""
    path = op_lists_dir / FILE
    releases = dict(read_extensions(path)) if path.is_file() else {}
    known = releases.get(facts.library, ())
    lines = by_version(release.line for release in known)
    file = registrations_file(facts.library)
    old = read_history(op_lists_dir / file, lines, VALUES)[0].operators if known else {}
    line = facts.release.line
    releases[facts.library] = (
        *(release for release in known if release.line != line),
        facts.release,
    )
    operators = with_column(old, lines, line, facts.column)
    history = History(schema=SCHEMA, namespace=facts.library, key="MPS", operators=operators)
    return {FILE: dump_extensions(releases), file: dump(history)}
