"""Writes a folder whole or not at all: next to its place first, then moved there."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import inside

#: This file marks an earlier site; its list shows whether the folder has other files.
MARKER = "opcheck-site.json"
SCHEMA = "opcheck-site-files/1"


class _SiteFiles(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    files: tuple[str, ...]


def check(output: Path) -> None:
    """Check that a site may be written there: the folder is missing, empty, or an earlier site.

    Raises:
        UsageError: it may not.
    """
    try:
        # A link to nothing is there, too.
        there = next(path for path in (output, *output.absolute().parents) if os.path.lexists(path))
        if not there.is_dir():
            raise _refusal("not a folder", there)
        if there != output:
            return
        present = {
            path.relative_to(output).as_posix()
            for path in output.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }
        if not present:
            return
        if MARKER not in present:
            raise _refusal("the folder is not empty, and no earlier site", output)
        ours = documents.from_json(documents.read(output / MARKER), _SiteFiles)
    except (OSError, DocumentError) as error:
        raise _refusal(f"the folder cannot be read: {error}", output) from error
    others = sorted(present - {*ours.files, MARKER})
    if ours.schema != SCHEMA or others:
        named = ", ".join(others[:3]) if others else MARKER
        raise _refusal(
            f"the folder has files that are not part of an earlier site: {named}", output
        )


def write(output: Path, files: Mapping[str, str]) -> None:
    """Put the files there, in place of an earlier site, which stays as it is if that fails.

    Args:
        output: the folder; a link is followed.
        files: texts by their paths within it.

    Raises:
        UsageError: it is not to be written to (``check``), or cannot be: no room, no permission.
    """
    check(output)
    place = output.resolve()
    token = secrets.token_hex(6)
    beside = place.with_name(f".{place.name}.{token}.new")
    earlier = place.with_name(f".{place.name}.{token}.old")
    hint = (
        "name a folder on a disk with room for it, where you may write; what was there is as it was"
    )
    with (
        explain_errors(OSError, "cannot write the site", context=output, hint=hint),
        _remove_afterwards(beside),
    ):
        _fill(beside, files)
        _exchange(beside, place, earlier)
    shutil.rmtree(earlier, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True)
    marker = msgspec.json.encode(_SiteFiles(schema=SCHEMA, files=tuple(sorted(files)))).decode()
    for name, text in {**files, MARKER: f"{marker}\n"}.items():
        path = inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _exchange(new: Path, place: Path, earlier: Path) -> None:
    if place.exists():
        place.rename(earlier)
    try:
        new.rename(place)
    except BaseException:
        if earlier.exists():
            earlier.rename(place)
        raise


@contextlib.contextmanager
def _remove_afterwards(folder: Path) -> Iterator[None]:
    """Remove half-written files however the block ends, also by Ctrl-C."""
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refusal(message: str, output: Path) -> UsageError:
    return UsageError(
        message,
        context=str(output),
        hint="name a new or an empty folder, or that of an earlier site",
    )
