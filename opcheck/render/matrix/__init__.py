"""The coverage of a release as Markdown, CSV, JSON, and as one page that stands alone."""

from __future__ import annotations

from collections.abc import Callable

from opcheck.data.registrations import OpLists, load
from opcheck.lookup.coverage import coverage
from opcheck.lookup.matrix import Matrix, matrix
from opcheck.lookup.plain_call import Asker
from opcheck.lookup.targets import macos_of, release_of


def render(
    torch: str | None,
    macos: str | None,
    format_name: str,
    lists: OpLists | None = None,
    progress: Callable[[str], None] | None = None,
) -> str:
    """The coverage in the format of that name.

    Args:
        torch: the release.  None: the newest.
        macos: the macOS version.  None: the newest.
        format_name: ``markdown``, ``csv``, ``json`` or ``html``.
        lists: the op lists.  None: those that opcheck ships.
        progress: told what is done, where it takes long.

    Raises:
        OpcheckError: no list for the release, or it does not run on that macOS.
    """
    asker = Asker(lists or load())
    if format_name == "html":
        from opcheck.render.matrix import page  # noqa: PLC0415  (reads its template)

        release = release_of(torch or asker.lists.releases[-1].line, asker.lists).release
        system = macos_of(macos, release)
        return page.render(coverage(system, asker, progress=progress), release.line)
    return write(matrix(torch, macos, asker=asker), format_name)


def write(found: Matrix, format_name: str) -> str:
    """One release in a format other than the page."""
    from opcheck.render.matrix import tables  # noqa: PLC0415  (only what is asked for)

    return {"markdown": tables.markdown, "csv": tables.comma_separated, "json": tables.json_rows}[
        format_name
    ](found)
