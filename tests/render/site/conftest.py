"""The small site, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.lookup.plain_call import OperatorLookup
from opcheck.render.site import folder, render
from opcheck.render.site.addresses import Page
from opcheck.render.site.pages import pages
from opcheck.render.site.sweep import Sweep
from tests.render.site.made import ABOUT, lists, tables


@pytest.fixture(scope="session")
def small_pages() -> tuple[Page, ...]:
    return pages(OperatorLookup(lists()), Sweep(tables(), ABOUT))


@pytest.fixture(scope="session")
def small(small_pages: tuple[Page, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("site") / "small"
    folder.write(output, render.files(small_pages))
    return output
