"""Builds the whole site: reads the lists, writes the pages, and puts the folder in its place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from opcheck.data.registrations import OpLists, load
from opcheck.features.site import folder, render, sweep
from opcheck.features.site.addresses import Page
from opcheck.features.site.pages import pages
from opcheck.lookup.plain_call import OperatorLookup


def build(
    output: Path,
    swept: Path | None = None,
    *,
    lists: OpLists | None = None,
    only: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[Page, ...]:
    """Write the site into a folder, and return its pages.  The same lists give the same bytes.

    Args:
        output: a folder that does not exist, is empty, or holds an earlier site, which it replaces.
        swept: the folder of a sweep, for the pages of models.  None: there are none.
        lists: the op lists; those that opcheck ships.
        only: the operators to write pages of.  Empty: all.
        progress: receives the name of each page as it is made and written.

    Raises:
        UsageError: the folder is not to be written to; the sweep cannot be read.
        OpListError: the lists are damaged.
    """
    folder.check(output)
    site_pages = pages(
        OperatorLookup(lists or load()),
        sweep.read(swept) if swept else None,
        only=only,
        progress=progress,
    )
    folder.write(output, render.files(site_pages, progress))
    return site_pages
