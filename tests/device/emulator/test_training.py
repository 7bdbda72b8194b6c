"""Training on the device: the CPU's numbers, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.usefixtures("mac")

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "AdamW fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "SGD fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "Adamax": lambda p: torch.optim.Adamax(p, 0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, 0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, 0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, 0.1),
    "Adafactor": lambda p: torch.optim.Adafactor(p, 0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, 0.1),
    "LBFGS": lambda p: torch.optim.LBFGS(p, 0.1),
}

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (2, 5, 4)),
    "linear on 3-d": (lambda: nn.Linear(4, 3), (2, 5, 4)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 2, 3)),
        (2, 2, 8, 8),
    ),
    "pooling": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()),
        (2, 2, 10, 10),
    ),
    "norms": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.LayerNorm(8), nn.RMSNorm(8)), (2, 4, 8, 8)),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 1)), (3, 4)),
}


def numbers(make: Callable[[], nn.Module], shape: tuple[int, ...], device: str) -> list[Any]:
    """The output and all gradients."""
    torch.manual_seed(0)
    model = make().to(device)
    x = torch.randn(shape).to(device).requires_grad_()
    out = model(x)
    out = out[0] if isinstance(out, tuple) else out
    out.pow(2).sum().backward()
    grads = [x.grad, *(parameter.grad for parameter in model.parameters())]
    return [tensor.detach().cpu() for tensor in [out, *grads] if tensor is not None]


@pytest.mark.usefixtures("one_stream")
@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_are_the_cpus(name: str) -> None:
    on_cpu, on_mps = (numbers(*MODELS[name], device) for device in ("cpu", "mps"))
    assert len(on_cpu) == len(on_mps)
    assert all(torch.equal(a, b) for a, b in zip(on_cpu, on_mps, strict=True))


@pytest.mark.usefixtures("one_stream")
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2, "batch_first": True}, {"num_layers": 2, "dropout": 0.5}]
)
def test_an_lstm_gives_the_cpus_gradients(options: dict[str, Any]) -> None:
    on_cpu, on_mps = (numbers(lambda: nn.LSTM(3, 4, **options), (5, 2, 3), device) for device in ("cpu", "mps"))
    assert all(torch.equal(a, b) for a, b in zip(on_cpu, on_mps, strict=True))


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_a_gru_goes_step_by_step_as_on_a_mac(kind: Any) -> None:
    # The CPU computes the input gates of all steps in one product, whose last bits differ.
    on_cpu, on_mps = (numbers(lambda: kind(3, 4), (5, 2, 3), d) for d in ("cpu", "mps"))
    for a, b in zip(on_cpu, on_mps, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore")  # torch's own, on the CPU as well
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_losses_are_the_cpus(name: str) -> None:
    losses = []
    for device in ("cpu", "mps"):
        torch.manual_seed(0)
        model = nn.Linear(4, 2).to(device)
        optimizer = OPTIMIZERS[name](model.parameters())
        x = torch.randn(3, 4).to(device)

        def closure(optimizer: Any = optimizer, model: nn.Module = model, x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).pow(2).mean()
            loss.backward()
            return loss

        losses.append([float(optimizer.step(closure)) for _ in range(3)])  # type: ignore[arg-type]
    assert losses[0] == losses[1]


def test_an_optimizers_state_is_loaded() -> None:
    model = nn.Linear(2, 2).to("mps")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device="mps")).sum().backward()
    optimizer.step()
    other = torch.optim.AdamW(model.parameters())
    other.load_state_dict(optimizer.state_dict())
    assert next(iter(other.state.values()))["exp_avg"].is_mps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_casts(dtype: torch.dtype) -> None:
    model = nn.Linear(4, 4).to("mps")
    with torch.autocast("mps", dtype=dtype):
        out = model(torch.ones(2, 4, device="mps"))
        assert out.dtype is dtype
        assert F.softmax(out, -1).dtype is torch.float32


def test_a_scaler_scales() -> None:
    model = nn.Linear(4, 4).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("mps")
    before = model.weight.detach().clone()
    with torch.autocast("mps", dtype=torch.float16):
        loss = model(torch.ones(2, 4, device="mps")).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_(model.parameters(), 1.0).is_mps
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.weight)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_runs_again(*, reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("mps")
    x = torch.ones(2, 4, device="mps", requires_grad=True)

    def run(x: torch.Tensor) -> Any:
        return model(x) + torch.arange(4).to("mps")

    checkpoint(run, x, use_reentrant=reentrant).sum().backward()
    assert model.get_parameter("0.weight").grad is not None


def test_hooks_see_tensors_on_the_device() -> None:
    seen: list[bool] = []
    model = nn.Linear(2, 2).to("mps")
    model.register_forward_hook(lambda _m, _i, out: seen.append(out.is_mps))
    model.register_full_backward_hook(lambda _m, _i, out: seen.append(cast("Any", out)[0].is_mps))
    model.weight.register_hook(lambda grad: grad + torch.ones(2, 2).to("mps"))
    model.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.is_mps))
    model(torch.ones(1, 2, device="mps", requires_grad=True)).sum().backward()
    assert seen == [True, True, True]
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[2, 2], [2, 2]]


def test_a_function_of_the_programs_own() -> None:
    class Clamp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            on_cpu = torch.zeros(2)
            assert not on_cpu.is_mps
            return grad * (x > 0) + torch.zeros(2, device="mps") + on_cpu.to("mps")

    x = torch.tensor([1.0, -1.0], device="mps", requires_grad=True)
    Clamp.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 0]


def test_double_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)).to("mps")
    x = torch.ones(2, 3, device="mps", requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    grad.pow(2).sum().backward()
    assert model.get_parameter("0.weight").grad is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own use of torch.jit
def test_function_transforms() -> None:
    x = torch.ones(3, device="mps")
    assert torch.func.grad(lambda x: (x**2).sum())(x).tolist() == [2, 2, 2]
    assert torch.func.vmap(lambda v: v * 2)(torch.ones(2, 3, device="mps")).is_mps
    assert torch.func.jacrev(lambda x: x**2)(x).shape == (3, 3)
    assert torch.func.hessian(lambda x: (x**3).sum())(x).diagonal().tolist() == [6, 6, 6]
    model = nn.Linear(3, 1).to("mps")
    assert torch.func.functional_call(model, dict(model.named_parameters()), (x,)).is_mps


def test_averages_of_models_and_vectors_of_parameters() -> None:
    model = nn.Linear(4, 4).to("mps")
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    average.update_parameters(model)
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 0, model.parameters())
    assert model.weight.sum() == 0


def test_parametrizations() -> None:
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to("mps")
    normed(torch.ones(1, 3, device="mps")).sum().backward()
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3).to("mps"))
    assert spectral(torch.ones(1, 3, device="mps")).is_mps


def test_attention_trains_and_infers() -> None:
    q = torch.randn(2, 4, 8, 16).to("mps")
    with torch.no_grad():
        on_mps = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        on_cpu = F.scaled_dot_product_attention(q.cpu(), q.cpu(), q.cpu(), is_causal=True)
    assert torch.equal(on_mps.cpu(), on_cpu)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).to("mps")
    x = torch.randn(2, 5, 16).to("mps")
    layer(x).sum().backward()
    with torch.inference_mode():
        assert layer.eval()(x).add_(1).is_mps


def test_packed_sequences() -> None:
    lengths = torch.tensor([5, 3, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 2).to("mps"), lengths, batch_first=True)
    out, _ = nn.LSTM(2, 3, batch_first=True).to("mps")(packed)
    padded, sizes = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    padded.sum().backward()
    assert padded.is_mps
    assert not sizes.is_mps
    assert sizes.tolist() == [5, 3, 2]


def test_a_scheduler_of_the_loss() -> None:
    model = nn.Linear(2, 2).to("mps")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(3):
        scheduler.step(model(torch.ones(1, 2, device="mps")).sum().detach() * 0)
    assert optimizer.param_groups[0]["lr"] < 0.1


def test_a_loader_with_workers_and_pinned_memory() -> None:
    data = TensorDataset(torch.arange(8.0))
    loaded = [
        value
        for (x,) in DataLoader(data, batch_size=3, num_workers=1, shuffle=True)
        for value in x.to("mps", non_blocking=True).tolist()
    ]
    assert sorted(loaded) == [*range(8)]
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but not supported"):
        assert [x.to("mps").is_mps for (x,) in DataLoader(data, 4, pin_memory=True)] == [True] * 2


def test_what_is_compiled_runs_operator_by_operator() -> None:
    model = torch.compile(nn.Linear(2, 2).to("mps"))
    assert model(torch.ones(1, 2, device="mps")).is_mps

    @torch.compile
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(torch.ones(1, device="mps")).tolist() == [2]
