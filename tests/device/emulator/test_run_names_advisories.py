"""A run names each advisory whose program calls what the advisory is about, as ``opcheck op`` does."""

from __future__ import annotations

import contextlib
import io
import warnings

import pytest

import opcheck
from opcheck.common.versions import Version
from opcheck.data.registrations import load
from opcheck.data.statement_model import program_text
from tests.data.test_programs import LARGE

LISTS = load().statements.by_id
MACS = ("15.0", "26.0", "14.0", "13.0", "12.3", "26.3", "13.4")
NAMES = [name for name, statement in LISTS.items() if statement.program and name not in LARGE]


def statements_of_run(name: str) -> set[str]:
    """Return the statements of the verdicts of the advisory's own program, on the newest target of its span."""
    advisory = LISTS[name]
    line, macos = next(
        (release.line, macos)
        for release in reversed(load().releases)
        for macos in MACS
        if release.version in advisory.torch
        and release.minimum <= Version.parse(macos) in advisory.macos
    )
    with (
        opcheck.emulate(torch=line, macos=macos) as emulation,
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        contextlib.suppress(RuntimeError),
    ):
        warnings.simplefilter("ignore")
        exec(compile(program_text(advisory.program), "program", "exec"), {})  # noqa: S102 - our own
    verdicts = [group.verdict for group in emulation.report.groups]
    return {name for v in verdicts for name in (*v.advisories, *v.limitations)} | {
        entry.detail for v in verdicts for entry in v.evidence
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_run_names_the_advisory_that_its_call_meets(name: str) -> None:
    assert name in statements_of_run(name)
