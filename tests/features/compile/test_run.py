"""Variants on real modules, and what ends them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._inductor.runtime.cache_dir_utils import cache_dir

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import InputError, ModelLoadError
from opcheck.features.compile.child import try_plan as room
from opcheck.features.compile.child.variants import ProgramCall, attempt
from opcheck.features.compile.compile_process import REST
from opcheck.features.compile.compile_records import CompilePlan, Variant
from tests.made import make_target

pytestmark = pytest.mark.filterwarnings("ignore")

EAGER = Variant(backend="eager")
X = torch.linspace(-1, 2, 32).reshape(4, 8)


class Break(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        if y.sum().item() > 1000:
            y = y * 2
        return y.cos()


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        message = f"no such number in {x.dtype}"
        raise ValueError(message)


class Sleeps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(60)
        return x


class Steps(nn.Module):
    """Changes itself at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Buffer(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return x + self.seen


def _say(text: str, *, seconds: float = 0.0) -> None:
    assert text
    assert seconds in {0.0, REST}


def test_graphs_are_those_of_the_shapes_given() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout())
    tried = attempt(ProgramCall(model, (X,), {}), Variant(backend="aot_eager", training=True))
    assert (tried.outcome, tried.graphs, tried.skipped) == ("works", 1, 0)
    (again,) = tried.recompiles
    assert "size mismatch at index 0. expected 4, actual 5" in again.guard
    assert tried.outputs is not None
    assert tried.gradients is not None
    assert tried.outputs.agrees


def test_a_break_is_told_with_its_line() -> None:
    tried = attempt(ProgramCall(Break(), (X,), {}), EAGER)
    assert (tried.outcome, tried.graphs) == ("works", 2)
    (result,) = tried.breaks
    assert result.id.startswith("GB")
    assert result.location is not None
    assert result.location.text == "if y.sum().item() > 1000:"


def test_a_recurrent_layer_is_not_compiled() -> None:
    tried = attempt(ProgramCall(nn.LSTM(8, 4), (X,), {}), EAGER)
    assert (tried.outcome, tried.graphs) == ("nothing compiled", 0)


def test_what_the_program_raises_itself_is_told_apart() -> None:
    tried = attempt(ProgramCall(Raises(), (X,), {}), EAGER)
    assert tried.failure is not None
    assert (tried.outcome, tried.failure.kind) == ("could not tell", "model")
    assert "without torch.compile, too" in tried.failure.message
    assert "no such number" in tried.failure.message


def test_a_program_that_changes_itself_starts_anew() -> None:
    assert attempt(ProgramCall(Steps(), (X,), {}), EAGER).outcome == "works"


class MasksByNumpy(nn.Module):
    """Draws as the masking of spectrograms does."""

    def __init__(self, factor: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        keep = torch.from_numpy(np.random.rand(8) > 0.3)  # noqa: NPY002  (the old interface is what is tested)
        # Only the compiled program takes the second term.
        return self.linear(x) * keep + self.factor * torch.compiler.is_compiling()


@pytest.mark.parametrize(("factor", "outcome"), [(0.0, "works"), (1.0, "differs")])
def test_what_numpy_draws_is_no_difference(factor: float, outcome: str) -> None:
    variant = Variant(backend="aot_eager", training=True)
    tried = attempt(ProgramCall(MasksByNumpy(factor), (X,), {}), variant)
    assert (tried.outcome, tried.breaks) == (outcome, ())


def test_complex_weights_stay_complex() -> None:
    class Phase(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, dtype=torch.complex64) * 1j)

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).imag

    tried = attempt(ProgramCall(Phase(), (X,), {}), EAGER)
    assert tried.outcome == "works"
    assert tried.outputs is not None


def test_metal_is_traced_without_the_fast_path_of_the_cpu() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    tried = attempt(ProgramCall(layer, (X[None],), {}), Variant(backend="inductor", metal=True))
    externs = {extern.op for graph in tried.side for extern in graph.externs}
    assert "aten::_transformer_encoder_layer_fwd" not in externs
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_variant_that_hangs_is_ended() -> None:
    program = ProgramCall(Sleeps(), (X,), {})
    tried = room._try(program, EAGER, CompilePlan(variants=(EAGER,), seconds=0.3))
    assert (tried.outcome, tried.failure and tried.failure.kind) == ("too long", "timeout")


def test_a_program_without_parameters_is_not_trained() -> None:
    trained = Variant(backend="aot_eager", training=True)
    plan, left_out = room._without_training(CompilePlan(variants=(EAGER, trained)), Break(), "m")
    assert (plan.variants, left_out) == ((EAGER,), ("training: no parameter requires a gradient",))
    with pytest.raises(ModelLoadError, match="there is nothing to train"):
        room._without_training(CompilePlan(variants=(trained,)), Break(), "m")
    whole = CompilePlan(variants=(EAGER, trained))
    assert room._without_training(whole, nn.Linear(2, 2), "m") == (whole, ())


def test_code_for_this_machine_is_compiled_in_the_scratch_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "the user's")
    file = tmp_path / "model.py"
    file.write_text("def make(x):\n    return x + 1\n", encoding="utf-8")
    request = CaptureRequest(model=f"{file}:make", target=make_target(), inputs=("2x3",))
    room.run(request, CompilePlan(variants=(), device="cuda", scratch=str(tmp_path)), _say)
    assert cache_dir() == str(tmp_path / "inductor")


def test_a_model_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.py"
    file.write_text("from torch import nn\ndef make(): return nn.Linear(9, 9)\n", encoding="utf-8")
    monkeypatch.setattr(room, "LIMIT", 100)
    request = CaptureRequest(model=f"{file}:make", target=make_target())
    with pytest.raises(InputError, match="too large to be run here"):
        room.run(request, CompilePlan(variants=()), _say)
