"""Each branch that only a Mac takes, in each release: the operators that are called there."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter

import pytest
import torch

from opcheck.capture.child.recording.recorder import Recorder
from opcheck.data.registrations import load
from opcheck.simulator.mac import simulated_mac
from tests.simulator.branches import CASES
from tests.simulator.mac import names, recorded, target

LINES = [release.line for release in load().releases]

#: whether torch/_decomp computes this gradient with other operators than those releases whose Macs run it
FUSES = "addcmul" in inspect.getsource(torch._decomp.decompositions.native_group_norm_backward)


@functools.cache
def _recorded(release: str) -> dict[str, Counter[str]]:
    """What each program calls on a Mac with this release, but for the inputs that it makes."""
    recorder = Recorder()
    results = {}
    registrations = dict(load().operators(release))
    with simulated_mac(target(release), registrations, recorder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in CASES.items():
            if not _expected(name, release):
                continue
            start = len(recorder.calls)
            with torch.set_grad_enabled(case.grad):
                case.program()
            calls = (entry.call.route.name for entry in recorder.calls[start:])
            results[name] = Counter(
                call.removeprefix("aten::") for call in calls if call != "aten::empty.memory_format"
            )
    return results


def _expected(name: str, release: str) -> str:
    known = [line for line in CASES[name].calls if LINES.index(line) <= LINES.index(release)]
    return CASES[name].calls[known[-1]] if known else ""


@pytest.mark.parametrize("release", LINES)
@pytest.mark.parametrize("name", CASES)
def test_the_operators_of_a_branch(name: str, release: str) -> None:
    expected = _expected(name, release)
    if not expected:
        pytest.skip("not read in this release")
    if name == "group_norm, backward" and "native_group_norm_backward" not in expected and FUSES:
        pytest.skip("the Python of the installed torch runs, and since 2.15 or so it calls addcmul")
    # The compiler of C++ decides in which order arguments are evaluated: no order is expected.
    assert _recorded(release)[name] == Counter(expected.split())


def test_each_row_names_releases_in_order() -> None:
    for name, case in CASES.items():
        assert list(case.calls) == sorted(case.calls, key=LINES.index), name


def _encoder_layer(x: torch.Tensor) -> None:
    with torch.device("meta"):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    for module in layer.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = torch.nn.Parameter(torch.zeros(weight.shape, device="mps"))
    layer(x)


@pytest.mark.parametrize("release", ["2.4", "2.13"])
def test_the_fast_path_of_an_encoder_is_not_taken(release: str) -> None:
    called = names(_encoder_layer, torch.zeros(1, 3, 8), release=release)
    assert called.count("linear") == 4
    assert not {"_transformer_encoder_layer_fwd", "_native_multi_head_attention"} & {*called}


@pytest.mark.parametrize(("release", "cells"), [("2.0", False), ("2.1", True), ("2.5", False)])
def test_an_lstm_of_two_layers_on_macos_12(release: str, *, cells: bool) -> None:
    def run(_: torch.Tensor) -> None:
        CASES["lstm, two layers"].program()

    if cells:
        with pytest.warns(UserWarning, match="Native multi-layer LSTM support in MPS"):
            called = names(run, torch.zeros(1), release=release, macos="12.3")
    else:
        called = names(run, torch.zeros(1), release=release, macos="12.3")
    assert ("_lstm_mps" in called) is not cells
    assert called.count("linear") == (2 * 2 * 2 if cells else 0)


def test_making_a_parameter_is_no_call() -> None:
    assert names(torch.nn.Parameter, torch.zeros(3)) == []


def test_clipping_has_no_foreach() -> None:
    def run(x: torch.Tensor) -> None:
        with pytest.raises(RuntimeError, match="foreach=True was passed, but can't use the foreach"):
            torch.nn.utils.clip_grad_norm_([_with_grad(x)], 1.0, foreach=True)

    recorded(run, torch.zeros(3))


def _with_grad(x: torch.Tensor) -> torch.Tensor:
    weight = torch.nn.Parameter(x)
    weight.grad = torch.ones_like(x)
    return weight
