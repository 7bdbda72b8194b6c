"""The small site, written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.features.site import render
from opcheck.features.site.page_records import SitePage
from opcheck.features.site.pages import pages
from opcheck.features.site.sweep import Sweep
from opcheck.lookup.plain_call import OperatorLookup
from tests.features.site.made import ABOUT, lists, tables


@pytest.fixture(scope="session")
def small_pages() -> tuple[SitePage, ...]:
    return pages(OperatorLookup(lists()), Sweep(tables(), ABOUT))


@pytest.fixture(scope="session")
def small(small_pages: tuple[SitePage, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("site") / "small"
    render.write(output, render.files(small_pages))
    return output
