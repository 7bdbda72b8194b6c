"""The children of a try, run in this process: torch is imported once."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import runpy
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import opcheck
from opcheck.render import render
from opcheck.reproducer import program_check


def in_process(arguments: Sequence[str]) -> tuple[int, str, str]:
    """What a child with these arguments would exit with and print."""
    if arguments[0] == "-c":
        return _executed(lambda: _schema(arguments[2]))
    if arguments[0] == "-m":
        given = dict(itertools.pairwise(arguments))
        path = Path(arguments[-1])
        with opcheck.emulate(given["--torch"], given["--macos"], fallback="--fallback" in arguments) as run:
            result = _executed(lambda: _script(str(path), "mps"))
        Path(given["--output"]).write_text(render(run.report, "json"), encoding="utf-8")
        return result
    return _executed(lambda: _script(*arguments))


def _schema(op: str) -> None:
    namespace, _, name = op.partition("::")
    packet, _, overload = name.partition(".")
    result = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    sys.stdout.write(
        json.dumps(
            [
                {"name": argument.name, "type": str(argument.type), "keyword_only": argument.kwarg_only}
                for argument in result._schema.arguments
            ]
        )
    )


def _script(path: str, device: str) -> None:
    before = sys.argv
    sys.argv = [path, device]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before


def _executed(function: object) -> tuple[int, str, str]:
    out, error = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            function()  # type: ignore[operator]
        except BaseException as raised:  # noqa: BLE001  (an abort of the emulated Mac is one)
            error.write("".join(traceback.format_exception_only(raised)))
            code = 1
    texts = [f"repro.py:1: {item.category.__name__}: {item.message}\n" for item in warned]
    return code, out.getvalue(), "".join(texts) + error.getvalue()


@pytest.fixture
def tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started."""
    monkeypatch.setattr(program_check, "_run", in_process)
