"""Options and fixtures that several tests share."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil  # noqa: F401  (here, because tests rename sys.platform, by which psutil chooses its parts)
import pytest
from hypothesis import settings

from opcheck.data.registrations import OpLists, load
from opcheck.lookup.plain_call import OperatorLookup
from tests.browser import CHROMIUM, session
from tests.mac_build import mac_build

pytest_plugins = ["tests.command_line"]

# Tests do not time themselves: a machine may be busy.
settings.register_profile("opcheck", deadline=None)
settings.load_profile("opcheck")

# A thread of torch's pool that waits for its next part sleeps; else it takes a core that another worker has work for.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# With OPCHECK_TEST_MAC_BUILD=1, all tests run on a torch that looks like a Mac's (tests/mac_build).  Here, because the
# conftest.py of a folder imports torch before pytest_configure.
_MAC_BUILD: tempfile.TemporaryDirectory[str] | None = None
if os.environ.get(mac_build.VARIABLE) == "1":
    _MAC_BUILD = tempfile.TemporaryDirectory(prefix="opcheck-mac-build-")
    mac_build.enter(Path(_MAC_BUILD.name))


def pytest_configure(config: pytest.Config) -> None:
    """Take back what pytest gives its children, and the folder of the Mac's build at the end."""
    # pytest imports readline, which gives its children, the workers of xdist, the size of a terminal that is not there.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    if _MAC_BUILD is not None:
        config.add_cleanup(_MAC_BUILD.cleanup)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where the real device was reached, even if a test caught it."""
    if mac_build.VARIABLE in os.environ and exitstatus == pytest.ExitCode.OK and mac_build.reached():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was reached of the real device."""
    if mac_build.VARIABLE in os.environ:
        lines = mac_build.reached()
        terminalreporter.section(f"a Mac's build: {len(lines)} calls reached the real device")
        for line in sorted({*lines}):
            terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew, then check them")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the libraries and the items to no collection of garbage: each would go through millions of objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a test with an argument that nothing passes, also where its marker leaves it out of this run."""
    for item in items:
        if isinstance(item, pytest.Function):
            passed = {*item._fixtureinfo.name2fixturedefs, "request"}
            if lost := set(item.fixturenames) - passed:
                raise pytest.UsageError(f"{item.nodeid}: nothing passes {', '.join(sorted(lost))}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, started once for a module, because its API keeps an event loop in this thread.

    A test of another module could start no event loop of its own.
    """
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    pytest.importorskip("playwright.sync_api", reason="no playwright here: the extra dev")
    with session() as result:
        yield result


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep reports of tests, and what they read of hubs, out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def lists() -> OpLists:
    """The op lists that opcheck ships."""
    return load()


@pytest.fixture(scope="session")
def lookup(lists: OpLists) -> OperatorLookup:
    """One lookup that the tests share: its memory of a whole release costs seconds to fill."""
    return OperatorLookup(lists)
