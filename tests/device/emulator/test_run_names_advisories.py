"""A run names each advisory whose program calls what the advisory is about, as ``opcheck op`` does."""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from typing import Any

import pytest
import torch

import opcheck
from opcheck.common.versions import Version
from opcheck.data.registrations import load
from opcheck.data.statement_model import program_text
from opcheck.simulator.errors import ProcessAbortedError
from tests.data.test_programs import LARGE

LISTS = load().statements.by_id
MACS = ("15.0", "26.0", "14.0", "13.0", "12.3", "26.3", "13.4")
NAMES = [name for name, statement in LISTS.items() if statement.program and name not in LARGE]


#: They catch what the CPU raises for values; an audit, which computes known values, ends there.
CAUGHT = [name for name in NAMES if "except " in LISTS[name].program]


def newest_target(name: str) -> tuple[str, str]:
    """Return the newest torch of an advisory's span that starts on a macOS of its span, with that macOS."""
    advisory = LISTS[name]
    return next(
        (release.line, macos)
        for release in reversed(load().releases)
        for macos in MACS
        if release.version in advisory.torch and release.minimum <= Version.parse(macos) in advisory.macos
    )


def statements_of_run(name: str) -> set[str]:
    """Return the statements of the verdicts of the advisory's own program."""
    line, macos = newest_target(name)
    with (
        opcheck.emulate(torch=line, macos=macos) as emulation,
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        contextlib.suppress(RuntimeError, ProcessAbortedError),
    ):
        warnings.simplefilter("ignore")
        exec(compile(program_text(LISTS[name].program), "program", "exec"), {})  # noqa: S102 - our own
    verdicts = [group.verdict for group in emulation.report.groups]
    return {name for v in verdicts for name in (*v.advisories, *v.limitations)} | {
        entry.detail for v in verdicts for entry in v.evidence
    }


def statements_of_audit(name: str) -> set[str]:
    """Return the statements of the verdicts of a model that does what the advisory's program does."""
    names: dict[str, Any] = {"torch": torch}
    body = textwrap.indent(LISTS[name].program, "    ")
    exec(compile(f"def result(device):\n{body}", "program", "exec"), names)  # noqa: S102 - our own

    @torch.enable_grad()
    def model(x: torch.Tensor) -> Any:
        return names["result"](x.device)

    line, macos = newest_target(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = opcheck.audit(model, torch.ones(1), torch=line, macos=macos)
    return {each for g in report.groups for each in (*g.verdict.advisories, *g.verdict.limitations)}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_names_the_advisory_that_its_call_meets(name: str) -> None:
    assert name in statements_of_run(name)


@pytest.mark.parametrize("name", ["mish-backward-strided", "nan-to-num-empty-out"])
def test_an_audit_names_the_advisory_that_its_call_meets(name: str) -> None:
    assert name in statements_of_audit(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*NAMES} - {*CAUGHT}))
def test_each_audit_names_the_advisory_that_its_call_meets(name: str) -> None:
    assert name in statements_of_audit(name)
