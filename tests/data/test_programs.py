"""The programs of advisories: each runs on the CPU, where both sides are the same, and tells a difference."""

from __future__ import annotations

import contextlib
import io
import warnings

import pytest

from opcheck.data.registrations import load
from opcheck.data.statement_model import program_text

PROGRAMS = {name: statement.program for name, statement in load().statements.by_id.items() if statement.program}
#: These take more than a second on one core.
LARGE = {
    "boolean-mask-varying-size",
    "copy-non-blocking",
    "exponential-zeros-graph",
    "exponential-zeros-kernel",
    "to-copy-non-blocking",
    "gru-training-nan",
    "householder-race",
    "linear-backward-vocabulary",
    "linear-many-rows-macos-13-2",
    "linear-one-feature-wide",
    "multinomial-many-categories-aborts",
    "multinomial-many-samples",
    "multinomial-zero-probability",
    "sort-many-short-rows",
}


def prints(text: str) -> str:
    written = io.StringIO()
    with contextlib.redirect_stdout(written), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text.replace('"mps"', '"cpu"'), "program", "exec"), {})  # noqa: S102 - our own
    return written.getvalue().strip()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in LARGE])
def test_a_program_prints_right_where_nothing_is_wrong(name: str) -> None:
    pytest.importorskip("torch")
    assert prints(program_text(PROGRAMS[name])) == "right"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_large_program_prints_right_where_nothing_is_wrong(name: str) -> None:
    pytest.importorskip("torch")
    assert prints(program_text(PROGRAMS[name])) == "right"


@pytest.mark.parametrize(
    "wrong", ["x + (1 if seen else 0)", "x[seen:]", "x.double() if seen else x", "x / (0 if seen else 1)"]
)
def test_a_program_prints_wrong_for_other_values_shapes_and_dtypes(wrong: str) -> None:
    pytest.importorskip("torch")
    body = f"global calls\ncalls = globals().get('calls', 0) + 1\nseen = calls - 1\nx = torch.ones(3)\nreturn {wrong}"
    assert prints(program_text(body)) == "wrong"
