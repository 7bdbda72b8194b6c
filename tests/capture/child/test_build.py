"""Models are built without memory for their weights, and everything else is as in a plain run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from opcheck.capture.child.build import SMALL, TABLE, building, fill_meta, values

LARGE = SMALL + 1


def test_a_large_weight_is_on_meta_and_a_small_one_is_real() -> None:
    with building() as mode:
        layer = nn.Linear(1024, 1024)
    assert layer.weight.is_meta
    assert not layer.bias.is_meta
    assert mode.avoided == 4 * 1024 * 1024


def test_outside_nothing_changes() -> None:
    with building():
        pass
    assert not torch.empty(LARGE).is_meta


def test_small_values_are_the_same_in_each_run_and_the_generator_is_put_back() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with building():
        first = nn.Linear(8, 8)
    assert torch.equal(torch.rand(3), expected)
    with building():
        second = nn.Linear(8, 8)
    assert torch.equal(first.weight, second.weight)
    assert first.weight.abs().sum() > 0


def test_where_meta_and_real_meet_the_result_is_on_meta() -> None:
    with building():
        large, small = torch.ones(300, 300), torch.ones(300)
        assert (large + small).is_meta
        assert (small @ large).is_meta
        assert torch.cat([small.expand(300, 300), large]).is_meta


def test_a_meta_tensor_takes_real_values_without_complaint() -> None:
    with building():
        large = torch.empty(300, 300)
        result = large.copy_(torch.ones(300))
    assert result is large
    assert large.is_meta


def test_a_real_tensor_that_is_overwritten_from_meta_keeps_its_values() -> None:
    with building():
        small = torch.full((300,), 2.0)
        result = small.copy_(torch.ones(300, 300).sum(0))
        total = torch.sum(torch.ones(300, 300), 0, out=small)
    assert result is small
    assert total is small
    assert torch.equal(small, torch.full((300,), 2.0))


def test_a_constructor_reads_its_small_tensors() -> None:
    with building():
        assert [x.item() for x in torch.linspace(0, 1, 3)] == [0.0, 0.5, 1.0]
        assert torch.arange(4).numpy().tolist() == [0, 1, 2, 3]
        assert torch.tensor([0, 3]).nonzero().tolist() == [[1]]
        assert torch.Tensor(5).shape == (5,)


def test_a_table_computed_from_small_tensors_is_real() -> None:
    size = 500
    with building():
        table = torch.outer(torch.arange(size), torch.arange(size))
    assert table.numel() > SMALL
    assert torch.equal(table, torch.outer(torch.arange(size), torch.arange(size)))


def test_a_table_that_is_not_cheap_is_on_meta() -> None:
    with building() as mode:
        assert torch.outer(torch.arange(3000), torch.arange(3000)).is_meta
        assert torch.arange(TABLE + 1).is_meta
    assert mode.avoided == 8 * (3000 * 3000 + TABLE + 1)


def test_tables_together_stay_within_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcheck.capture.child.build.BUDGET", 8 * LARGE)
    with building():
        assert not torch.arange(LARGE).is_meta
        assert torch.arange(LARGE).is_meta


def test_a_view_of_a_real_tensor_shares_its_memory() -> None:
    with building():
        row = torch.zeros(300)
        rows = row.expand(300, 300)
        row.fill_(3)
    assert rows[7, 7].item() == 3


def test_asking_for_the_cpu_does_not_ask_for_the_values() -> None:
    with building():
        large = torch.empty(300, 300)
        assert large.to("cpu").is_meta
        assert large.cpu().double().dtype is torch.float64


def test_another_device_is_left_alone() -> None:
    with building():
        assert torch.empty(3, device="meta").is_meta
        with pytest.raises((RuntimeError, AssertionError, NotImplementedError)):
            torch.empty(3, device="xpu")


def test_a_parameter_of_zeros_ones_or_random_numbers() -> None:
    with building():
        token = nn.Parameter(torch.zeros(1, 1, 768))
        embedding = nn.Parameter(torch.randn(1, 577, 768) * 0.02)
    assert token.requires_grad
    assert not token.is_meta
    assert embedding.is_meta
    assert embedding.is_leaf


def test_initialisation_works_on_both() -> None:
    with building():
        for shape in ((8, 8), (300, 300)):
            weight = torch.empty(shape)
            for name in ("trunc_normal_", "orthogonal_", "kaiming_uniform_", "eye_", "zeros_"):
                assert getattr(nn.init, name)(weight) is weight


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(512, 512, 2, bidirectional=True),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 2),
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(512, 512, 3), dim=2),
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(512, 512)),
        lambda: nn.Sequential(nn.Conv2d(256, 256, 3), nn.BatchNorm2d(256)),
    ],
    ids=["lstm", "deep copies", "weight norm", "spectral norm", "batch norm"],
)
def test_layers_have_the_shapes_of_a_plain_run(make: type[nn.Module]) -> None:
    with building() as mode:
        built = make()
    plain = make()
    assert mode.avoided
    assert {name: (p.shape, p.dtype) for name, p in built.state_dict().items()} == {
        name: (p.shape, p.dtype) for name, p in plain.state_dict().items()
    }


def test_casting_and_tied_weights() -> None:
    with building():
        model = nn.ModuleDict({"embed": nn.Embedding(5000, 64), "head": nn.Linear(64, 5000)})
        model["head"].weight = model["embed"].weight
        model.to(torch.bfloat16)
    assert model["head"].weight is model["embed"].weight
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


def test_buffers_of_library_models_have_their_values() -> None:
    transformers = pytest.importorskip("transformers")

    def make() -> nn.Module:
        swin = transformers.SwinConfig(depths=[1], num_heads=[2], embed_dim=32, window_size=7)
        llama = transformers.LlamaConfig(hidden_size=512, intermediate_size=512, num_hidden_layers=1, vocab_size=2000)
        bert = transformers.BertConfig(num_hidden_layers=1)
        return nn.ModuleList(
            [transformers.SwinModel(swin), transformers.LlamaModel(llama), transformers.BertModel(bert)]
        )

    with building() as mode:
        built = make()
    assert mode.avoided > 2_000_000
    expected = dict(make().named_buffers())
    assert len(expected) > 3
    for name, buffer in built.named_buffers():
        assert torch.equal(buffer, expected[name]), name


def test_an_eight_billion_configuration_takes_little_memory() -> None:
    pytest.importorskip("transformers")
    program = """
import resource, sys
from opcheck.capture.child.loading.load import load

config = dict(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=14336, vocab_size=128256,
)
model = load("transformers:LlamaForCausalLM", config, dtype="bfloat16").model
print(sum(p.numel() for p in model.parameters()), sum(p.nbytes for p in model.parameters()))
# In KiB on Linux, in bytes on a Mac.
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak if sys.platform == "darwin" else peak * 1024)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    parameters, size, peak = map(int, done.stdout.split())
    assert parameters == 8_030_261_248
    assert size == 2 * parameters
    assert peak < 2_000_000_000


def test_inputs_made_while_building_become_real() -> None:
    with building():
        made: dict[str, Any] = {"image": torch.randn(1, 3, 224, 224), "sizes": [torch.ones(2)], "flag": True}
    assert made["image"].is_meta
    filled = fill_meta(made)
    assert filled["image"].shape == (1, 3, 224, 224)
    assert filled["image"].std() > 0.1
    assert torch.equal(filled["sizes"][0], torch.ones(2))
    assert filled["flag"] is True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.float8_e5m2])
def test_values_are_the_same_in_each_run(dtype: torch.dtype) -> None:
    first, other = values((3, 4), dtype), values((3, 4), dtype)
    assert first.dtype is dtype
    assert first.shape == (3, 4)
    assert torch.equal(first.to(torch.complex64), other.to(torch.complex64))


def test_integer_values_are_below_the_limit() -> None:
    drawn = values((1000,), torch.int64, 7)
    assert set(drawn.tolist()) == set(range(7))
    assert values((5,), torch.int32).tolist() == [0] * 5
    assert values((2,), torch.bool).all()
