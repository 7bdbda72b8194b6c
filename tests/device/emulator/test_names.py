"""Python names by release: the program's code sees those of the target, torch's own keeps all of its own."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import io
import pickle
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import opcheck
from opcheck.data.registrations import load
from opcheck.simulator.errors import NotSimulatedError

LINES = [release.line for release in load().releases]
LIBRARY = "/usr/lib/python3/site-packages/some_library/model.py"


def run_in(file: str, text: str) -> dict[str, Any]:
    """The names that a module of that file has after it ran."""
    module = types.ModuleType("some_code")
    exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - a line of this test's
    return module.__dict__


@pytest.mark.parametrize("file", [__file__, LIBRARY])
@pytest.mark.parametrize(
    ("release", "statement", "text"),
    [
        ("2.4", "torch.accelerator", "module 'torch' has no attribute 'accelerator'"),
        ("2.5", "import torch.accelerator", "No module named 'torch.accelerator'"),
        ("2.5", "from torch import accelerator", "cannot import name 'accelerator' from 'torch' ("),
        ("2.6", "torch.mps.compile_shader", "module 'torch.mps' has no attribute 'compile_shader'"),
        ("2.0", "torch.mps.Event", "module 'torch.mps' has no attribute 'Event'"),
        ("2.0", "import torch.mps.profiler", "No module named 'torch.mps.profiler'"),
        ("2.2", "torch.amp.GradScaler", "module 'torch.amp' has no attribute 'GradScaler'"),
        ("2.3", "torch.nn.RMSNorm(3)", "module 'torch.nn' has no attribute 'RMSNorm'"),
        ("2.3", "F.rms_norm", "module 'torch.nn.functional' has no attribute 'rms_norm'"),
        ("2.2", "from torch.nn.attention import sdpa_kernel", "No module named 'torch.nn.attention'"),
        ("1.13", "torch.compile", "module 'torch' has no attribute 'compile'"),
        ("1.13", "F.rms_norm", "module 'torch.nn.functional' has no attribute 'rms_norm'"),
        ("1.13", "torch.mps", "module 'torch' has no attribute 'mps'"),
        ("1.13", "torch.func.vmap", "module 'torch' has no attribute 'func'"),
        ("2.3", "torch.library.custom_op", "module 'torch.library' has no attribute 'custom_op'"),
        ("2.0", "torch.export", "module 'torch' has no attribute 'export'"),
        ("2.2", "torch.uint16", "module 'torch' has no attribute 'uint16'"),
        ("2.7", "torch.accelerator.device_index(0)", "module 'torch.accelerator' has no attribute"),
        ("2.8", "torch.optim.Muon", "module 'torch.optim' has no attribute 'Muon'"),
        ("2.8", "torch.backends.mps.get_name()", "module 'torch.backends.mps' has no attribute"),
    ],
)
def test_a_newer_name_is_not_there(file: str, release: str, statement: str, text: str) -> None:
    program = f"import torch\nfrom torch.nn import functional as F\n{statement}\n"
    with opcheck.emulate(torch=release, macos="15"), pytest.raises((AttributeError, ImportError)) as caught:
        run_in(file, program)
    assert text in str(caught.value)


ATTENTION = "q = torch.rand(1, 2, 3, 4, device='mps')\nF.scaled_dot_product_attention(q, q, q, {})"
LAYER = "nn.Linear(1, 1).load_state_dict({{}}, strict=False, {})"
PADDED = "from torch.nn.utils.rnn import pad_sequence\npad_sequence([torch.ones(3)], False, {})"
LOSS = "F.mse_loss(torch.ones(3), torch.ones(3), {})"


@pytest.mark.parametrize("file", [__file__, LIBRARY])
@pytest.mark.parametrize(
    ("before", "call", "argument", "name"),
    [
        ("2.4", ATTENTION, "enable_gqa=True", "scaled_dot_product_attention"),
        ("2.0", "nn.LayerNorm(3, {})", "bias=False", "LayerNorm.__init__"),
        ("2.0", LAYER, "assign=True", "Module.load_state_dict"),
        ("2.4", PADDED, "padding_side='left'", "pad_sequence"),
        ("2.5", LOSS, "weight=torch.ones(3)", "mse_loss"),
        ("2.9", "torch.randn_like(torch.ones(3), {})", "generator=None", "randn_like"),
        ("2.1", "nn.init.normal_(torch.ones(3), {})", "generator=None", "normal_"),
    ],
)
def test_a_newer_argument_is_refused_before_its_release_alone(
    file: str, before: str, call: str, argument: str, name: str
) -> None:
    head = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    with opcheck.emulate(torch=before, macos="15"):
        run_in(file, head + call.format(""))
        with pytest.raises(TypeError) as caught:
            run_in(file, head + call.format(argument))
    text = f"{name}() got an unexpected keyword argument {argument.partition('=')[0]!r}"
    assert str(caught.value) == text
    with opcheck.emulate(torch=LINES[LINES.index(before) + 1], macos="15"):
        run_in(file, head + call.format(argument))


def test_a_newer_argument_by_its_position_is_refused_and_a_renamed_is_not() -> None:
    with opcheck.emulate(torch="2.0", macos="15"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'bias'"):
            nn.LayerNorm(3, 1e-5, True, False)
        library = torch.library.Library("opcheck_test_names", "FRAGMENT")
        torch.library.define("opcheck_test_names::twice", "(Tensor x) -> Tensor", lib=library)


def test_an_argument_that_the_installed_torch_has_lost_is_no_error_of_the_program() -> None:
    optimizer = torch.optim.SGD([torch.ones(1)])
    with opcheck.emulate(torch="2.5", macos="15"), pytest.raises(NotSimulatedError, match="has no argument 'verbose'"):
        torch.optim.lr_scheduler.StepLR(optimizer, 1, verbose=True)  # type: ignore[call-arg]
    with (
        opcheck.emulate(torch="2.8", macos="15"),
        pytest.raises(TypeError, match="unexpected keyword argument 'verbose'"),
    ):
        torch.optim.lr_scheduler.StepLR(optimizer, 1, verbose=True)  # type: ignore[call-arg]


def test_functions_are_as_before_when_the_mac_ends() -> None:
    before = torch.nn.functional.mse_loss, torch.nn.LayerNorm.__init__
    with opcheck.emulate(torch="2.4", macos="15"):
        assert torch.nn.functional.mse_loss is not before[0]
    assert (torch.nn.functional.mse_loss, torch.nn.LayerNorm.__init__) == before


def test_the_name_is_there_from_its_release_on() -> None:
    with opcheck.emulate(torch="2.4", macos="15"):
        assert hasattr(torch.nn, "RMSNorm")
        assert not hasattr(torch, "accelerator")
        assert importlib.util.find_spec("torch.accelerator") is None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("torch.accelerator")
    with opcheck.emulate(torch="2.6", macos="15"):
        assert torch.accelerator.is_available()
        assert importlib.import_module("torch.accelerator") is torch.accelerator


def test_afterwards_all_names_are_where_they_were() -> None:
    places = (torch, torch.mps, torch.nn.functional, torch.accelerator, torch.backends.mps)

    def state() -> list[object]:
        return [(type(place), dir(place)) for place in places]

    before = state(), importlib.import_module, __import__
    with opcheck.emulate(torch="1.13", macos="15"):
        assert state() != before[0]
    assert (state(), importlib.import_module, __import__) == before


def _train(optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2)).to("mps")
    step = optimizer(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(step, 1)
    model(torch.randn(5, 3, device="mps")).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    step.step()
    schedule.step()
    step.zero_grad()
    copy.deepcopy(model).load_state_dict(model.state_dict())


def _save_and_load() -> None:
    file = io.BytesIO()
    torch.save({"x": torch.ones(2, device="mps")}, file)
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].tolist() == [1, 1]
    pickle.loads(pickle.dumps(torch.ones(2, device="mps")))  # noqa: S301 - made in this line


def _load_data() -> None:
    data = TensorDataset(torch.arange(4.0))
    assert len([*DataLoader(data, batch_size=2, shuffle=True, pin_memory=True)]) == 2


def _recompute() -> None:
    layer, x = nn.Linear(2, 2).to("mps"), torch.randn(1, 2, device="mps", requires_grad=True)
    for reentrant in (True, False):
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=reentrant).sum().backward()


def _attend() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True).to("mps")
    layer(torch.randn(1, 3, 8, device="mps")).sum().backward()
    nn.MultiheadAttention(8, 2).to("mps").eval()(*[torch.randn(3, 1, 8, device="mps")] * 3)


def _repeat() -> None:
    nn.LSTM(3, 4).to("mps")(torch.randn(2, 1, 3, device="mps"))
    nn.GRU(3, 4).to("mps")(torch.randn(2, 1, 3, device="mps"))


def _convolve() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    layers.to("mps")(torch.randn(2, 3, 8, 8, device="mps")).mean().backward()


def _seed() -> None:
    torch.manual_seed(0)
    torch.seed()
    with torch.random.fork_rng(devices=()):
        torch.initial_seed()
    torch.set_rng_state(torch.get_rng_state())


def _print() -> None:
    assert "mps:0" in repr(torch.ones(2, device="mps"))
    repr(nn.Linear(2, 2).to("mps"))


def _cast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        nn.Linear(2, 2)(torch.ones(1, 2))


def _distribute() -> None:
    torch.distributions.Normal(torch.zeros(2, device="mps"), 1.0).rsample()
    torch.distributions.Categorical(logits=torch.zeros(2, device="mps")).sample()


def _hook() -> None:
    layer = nn.Linear(2, 2).to("mps")
    layer.register_forward_hook(lambda *_: None)
    layer(torch.ones(1, 2, device="mps")).register_hook(lambda grad: grad)
    torch.autograd.grad(layer(torch.ones(1, 2, device="mps")).sum(), layer.weight)


ORDINARY = (
    *(_save_and_load, _load_data, _recompute, _attend, _repeat, _convolve, _seed, _print, _cast),
    *(_distribute, _hook),
)


@pytest.mark.parametrize("release", LINES)
def test_ordinary_calls_work_on_every_release(release: str) -> None:
    with opcheck.emulate(torch=release, macos="15", fallback=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in ORDINARY:
            call()
        for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            _train(optimizer)


def test_a_submodule_that_is_imported_later_is_not_there_either(tmp_path: Path) -> None:
    from tests.device.emulator.test_programs import run

    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "torch.optim.AdamW\n"
        "try:\n    import torch.nn.attention.flex_attention\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
        "print(hasattr(torch.nn, 'attention'))\n"
    )
    ended = run(tmp_path, str(script), flags=("--torch=2.4",))
    assert ended.out.splitlines() == ["No module named 'torch.nn.attention.flex_attention'", "True"]


def test_a_library_that_asks_for_a_newer_torch_sees_the_installed_one() -> None:
    file, installed = "/usr/lib/python3/site-packages/transformers/model.py", nn.RMSNorm
    with opcheck.emulate(torch="2.3", macos="15") as run:
        names = run_in(file, "import torch\nx = torch.nn.RMSNorm\nimport torch.accelerator\n")
    assert names["x"] is installed
    (finding,) = [item for item in run.report.findings if item.rule == "OC123"]
    assert "transformers" in finding.message
    assert "requires torch>=" in finding.message


@pytest.mark.skipif(hasattr(torch, "foreach"), reason="the installed torch has it, too")
def test_a_name_that_only_the_target_has_is_said() -> None:
    with (
        opcheck.emulate(torch="2.15", macos="15") as run,
        pytest.raises(AttributeError, match="'torch' has no attribute 'foreach'"),
    ):
        run_in(__file__, "import torch\ntorch.foreach\n")
    assert [finding.rule for finding in run.report.findings if "no torch.foreach" in finding.message] == ["OC123"]
