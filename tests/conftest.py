"""Options and fixtures that several tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from opcheck.oplists.registrations import OpLists, load

# Tests do not time themselves: a machine may be busy.
settings.register_profile("opcheck", deadline=None)
settings.load_profile("opcheck")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew, then check them"
    )


@pytest.fixture(scope="session")
def lists() -> OpLists:
    """The op lists that opcheck ships."""
    return load()
