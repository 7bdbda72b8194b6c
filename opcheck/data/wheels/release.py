"""Read a whole wheel: all data of a release that the op lists contain; and write it there."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.files import write_text
from opcheck.common.picking import pick
from opcheck.common.versions import Version
from opcheck.data.files import Counts, Release, add_column, dump_releases, read_releases
from opcheck.data.history import by_version
from opcheck.data.registrations import FILES, VALUES, forget
from opcheck.data.wheels import archive, column
from opcheck.data.wheels.archive import obtain
from opcheck.data.wheels.damage import damage
from opcheck.data.wheels.image import Image

#: aten/src/ATen/mps/MPSDevice.mm or MPSHooks.mm: the text that the backend refuses to start with.
#: The wheel's platform tag is not the minimum: macosx_11_0 wheels of 2.9 need macOS 14.
_MINIMUM = b"The MPS backend is supported on "
_VERSION = re.compile(r"(\d+\.\d+)\+")


class ReleaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A release and its column in each data file, by the key of the file."""

    release: Release
    columns: Mapping[str, Mapping[str, str]]


def read_release(path: Path) -> ReleaseFacts:
    """Read a macOS arm64 wheel of torch; only its torchgen is executed.

    Raises:
        OpListError: the file is no such wheel or is damaged, or its sources contradict each other
            in a way that no earlier release did.
    """
    with archive.report_damage(path, "download it again, or name another release"):
        return _read(path)


def _read(path: Path) -> ReleaseFacts:
    wheel = archive.read_archive(path)
    python = column.python_kernels(wheel.python_sources())
    with tempfile.TemporaryDirectory(prefix="opcheck-wheel-") as folder:
        tree = Path(folder)
        wheel.unpack(tree)
        written = column.read_schemas(tree)
        image = Image.parse(tree / archive.LIBRARY)
    dispatch = column.dispatch(column.registrations(image))
    schemas = _with_declared(written, column.find_declared(image))
    column.check(dispatch, schemas)
    column.check_unconditional(image)
    table = column.stub_table(image)
    minimum, text = _minimum_macos(image)
    values = column.column(dispatch, schemas, python, table)
    columns = {
        "MPS": values,
        "SparseMPS": dict.fromkeys(dispatch.key("SparseMPS"), "kernel"),
        "SparseCsrMPS": dict.fromkeys(dispatch.key("SparseCsrMPS"), "kernel"),
        "AutocastMPS": dispatch.autocast,
        "stubs": {name: "kernel" if mps else "none" for name, mps in table.items()},
    }
    counts = Counts(
        aten_mps=len(dispatch.key("MPS")),
        sparse_mps=len(dispatch.key("SparseMPS")),
        sparse_csr_mps=len(dispatch.key("SparseCsrMPS")),
        autocast_mps=len(dispatch.autocast),
        always_fallback=len(dispatch.always_fallback),
        python=len(python),
        stubs_with_mps=sum(table.values()),
        overloads=len(values),
    )
    release = Release(
        torch=wheel.version,
        line=str(Version.parse(wheel.version)),
        wheel=path.name,
        **pick(wheel, "sha256", "commit", "built"),
        minimum_macos=minimum,
        minimum_macos_text=text,
        counts=counts,
    )
    return ReleaseFacts(release=release, columns=columns)


def _with_declared(written: dict[str, column.Schema], names: frozenset[str]) -> dict[str, column.Schema]:
    """Return the yaml's overloads, and those that only C++ declares (aten::quantized_lstm.input ...)."""
    if not written.keys() <= names:
        raise damage("undeclared", ", ".join(sorted(written.keys() - names)[:8]))
    return {name: written.get(name, column.Schema(generated=False, keys=())) for name in names}


def _minimum_macos(image: Image) -> tuple[str, str]:
    texts = sorted({text.strip() for text in image.strings(_MINIMUM)})
    versions = {match[1] for text in texts if (match := _VERSION.search(text))}
    if len(versions) != 1 or len(texts) != 1:
        raise damage("no_minimum", f"{_MINIMUM.decode()!r}: {texts}")
    return versions.pop(), texts[0]


# -- write a release into the op lists -------------------------------------------------------------------------


class BuildSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a build."""

    release: Release
    #: the data files whose bytes changed, relative to the op lists' directory.
    changed: tuple[str, ...]


def build(source: str, op_lists_dir: Path, cache: Path) -> BuildSummary:
    """Read a release's macOS wheel and write what it registers into the op lists.

    Args:
        source: a release such as ``2.13.0``, or the path of a wheel.
        op_lists_dir: the directory to write to; an empty one starts new lists.
        cache: where downloaded wheels are kept.

    Raises:
        UsageError: ``source`` is neither a release nor a wheel.
        OpListError: the wheel is missing, damaged or breaks an invariant of the reader, or the
            op lists are already damaged.
    """
    facts = read_release(obtain(source, cache))
    changed = write_changed(merge_release(facts, op_lists_dir), op_lists_dir)
    return BuildSummary(release=facts.release, changed=changed)


def write_changed(texts: Mapping[str, str], op_lists_dir: Path) -> tuple[str, ...]:
    """Write the data files whose text differs, and return their names."""
    changed = []
    for file, text in texts.items():
        path = op_lists_dir / file
        if not path.is_file() or documents.read_text(path) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
            changed.append(file)
    forget()
    return tuple(changed)


def merge_release(facts: ReleaseFacts, op_lists_dir: Path) -> dict[str, str]:
    """Return the text of each data file with the release added.

    Raises:
        OpListError: the op lists there are damaged.
    """
    listed_releases = _read_releases(op_lists_dir)
    lines = by_version(release.line for release in listed_releases)
    release = facts.release
    rest = [listed for listed in listed_releases if listed.line != release.line]
    texts = {"releases.yaml": dump_releases([*rest, release])}
    for key, file in FILES.items():
        # The stubs are C++ objects of at::native; everything else is an operator of aten.
        names = ("at::native", "MPS") if key == "stubs" else ("aten", key)
        column = facts.columns[key]
        texts[file] = add_column(op_lists_dir / file, lines, VALUES[key], release.line, column, *names)
    return texts


def _read_releases(op_lists_dir: Path) -> Sequence[Release]:
    path = op_lists_dir / "releases.yaml"
    if path.is_file():
        return read_releases(path)[0]
    # A history needs the list of releases: its values are valid "until the next known release".
    orphan = next((f for f in FILES.values() if (op_lists_dir / f).is_file()), None)
    if orphan:
        raise damage("no_releases", str(op_lists_dir / orphan))
    return ()
