"""The coverage of a release as Markdown, CSV, JSON, and as one page that stands alone."""

from __future__ import annotations

from opcheck.ask.coverage import coverage
from opcheck.ask.matrix import Matrix, matrix
from opcheck.ask.plain import Asker
from opcheck.oplists.registrations import OpLists, load


def render(
    torch: str | None, macos: str | None, format_name: str, lists: OpLists | None = None
) -> str:
    """The coverage in the format of that name: ``markdown``, ``csv``, ``json`` or ``html``.

    Raises:
        OpcheckError: no list for the release, or it does not run on that macOS.
    """
    asker = Asker(lists or load())
    found = matrix(torch, macos, asker=asker)
    if format_name == "html":
        from opcheck.report.matrix import page  # noqa: PLC0415  (reads its template)

        return page.render(coverage(found.macos, asker), found.torch)
    return write(found, format_name)


def write(found: Matrix, format_name: str) -> str:
    """One release in a format other than the page."""
    from opcheck.report.matrix import tables  # noqa: PLC0415  (only what is asked for)

    return {"markdown": tables.markdown, "csv": tables.comma_separated, "json": tables.json_rows}[
        format_name
    ](found)
