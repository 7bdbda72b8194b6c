"""Write a release into the op lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.errors import OpListError
from opcheck.common.files import write_text
from opcheck.data.files import Release, dump_releases, read_history, read_releases
from opcheck.data.history import SCHEMA, History, by_version, dump, with_column
from opcheck.data.registrations import FILES, VALUES, forget
from opcheck.data.wheels.archive import obtain
from opcheck.data.wheels.release import ReleaseFacts, read_release


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
    known = _read_releases(op_lists_dir)
    lines = by_version(release.line for release in known)
    release = facts.release
    rest = [listed for listed in known if listed.line != release.line]
    texts = {"releases.yaml": dump_releases([*rest, release])}
    for key, file in FILES.items():
        path = op_lists_dir / file
        old = read_history(path, lines, VALUES[key])[0].operators if known else {}
        operators = with_column(old, lines, release.line, facts.columns[key])
        # The stubs are C++ objects of at::native; everything else is an operator of aten.
        namespace, name = ("at::native", "MPS") if key == "stubs" else ("aten", key)
        texts[file] = dump(
            History(schema=SCHEMA, namespace=namespace, key=name, operators=operators)
        )
    return texts


def _read_releases(op_lists_dir: Path) -> Sequence[Release]:
    path = op_lists_dir / "releases.yaml"
    if path.is_file():
        return read_releases(path)[0]
    # A history needs the list of releases: its values are valid "until the next known release".
    orphan = next((f for f in FILES.values() if (op_lists_dir / f).is_file()), None)
    if orphan:
        raise OpListError(
            "op lists without their releases.yaml",
            context=str(op_lists_dir / orphan),
            hint="restore releases.yaml, or remove the directory's registrations to start over",
        )
    return ()
