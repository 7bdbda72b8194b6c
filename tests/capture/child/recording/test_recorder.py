"""Which module and which line a call belongs to; which modules were never called."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording import recorder as recorder_module
from opcheck.capture.child.recording.recorder import LoopsOnGuessError, Recorder, TooManyCallsError
from opcheck.data.registrations import load
from opcheck.simulator.mac import simulated_mac
from opcheck.tracing.source_locations import display_path, is_user_code, locate_in_text
from tests.simulator.mac import target


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.tied = self.blocks[0]
        self.unused = nn.Linear(4, 4)
        self.borrowed = nn.Linear(4, 4)
        self.dropout = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        x = nn.functional.linear(self.tied(x), self.borrowed.weight)
        return x + 1


def _run(model: nn.Module) -> Recorder:
    mover, recorder = Mover(16_384), Recorder()
    mover.module(model)
    x = mover.value(torch.ones(2, 4), "x")
    registrations = dict(load().operators("2.13"))
    with simulated_mac(target(), registrations, recorder), recorder.sites.follow_modules(model):
        model(x)
    return recorder


def test_modules_by_the_first_of_their_names() -> None:
    recorder = _run(Nested())
    modules = [entry.module for entry in recorder.calls]
    assert modules == ["blocks.0", "blocks.1", "blocks.0", "Nested", "Nested"]


def test_lines_are_the_users() -> None:
    recorder = _run(Nested())
    places = [recorder.place(entry)[0] for entry in recorder.calls]
    assert all(place is not None for place in places)
    assert [place.text for place in places if place] == [
        "x = block(x)",
        "x = block(x)",
        "x = nn.functional.linear(self.tied(x), self.borrowed.weight)",
        "x = nn.functional.linear(self.tied(x), self.borrowed.weight)",
        "return x + 1",
    ]


def test_a_module_whose_weight_is_used_elsewhere_was_reached() -> None:
    model = Nested()
    assert _run(model).list_uncalled(model) == ("unused",)


def test_module_calls_are_as_before_afterwards() -> None:
    before = nn.Module.__call__
    _run(Nested())
    assert nn.Module.__call__ is before


def test_a_line_that_loops_on_a_guess_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_GUESSES", 3)

    class Loops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            big = x.new_zeros(200, 200)
            while not big.sum() > 0:
                big = big + x.sum()
            return big

    with pytest.raises(LoopsOnGuessError, match="4 times"):
        _run(Loops())


def test_whose_code_a_file_is() -> None:
    assert is_user_code(__file__)
    assert not is_user_code(torch.__file__)
    assert not is_user_code(recorder_module.__file__)
    assert not is_user_code("<string>")


def test_paths_are_relative() -> None:
    assert display_path(__file__) == "tests/capture/child/recording/test_recorder.py"
    assert display_path("/somewhere/else/model.py") == "model.py"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a working directory")
def test_a_path_has_a_name_where_the_working_directory_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert display_path(str(gone / "model.py")) == "model.py"


def test_the_innermost_line_of_a_stack_trace() -> None:
    trace = f'File "{__file__}", line 1, in forward\n  File "{torch.__file__}", line 9, in relu\n'
    location = locate_in_text(trace)
    assert location is not None
    assert (location.file, location.line) == ("tests/capture/child/recording/test_recorder.py", 1)
    assert locate_in_text(None) is None


def test_a_run_that_calls_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_CALLS", 3)

    class Endless(nn.Module):
        def forward(self, x: torch.Tensor) -> None:
            while True:
                with contextlib.suppress(Exception):
                    x = x + 1

    with pytest.raises(TooManyCallsError, match="more than 3 operator calls"):
        _run(Endless())
