"""The unrolled cells compute what torch computes."""

from __future__ import annotations

import pytest
import torch

from opcheck.simulator.dispatch.operators import BRANCHES
from tests.simulator.mac import recorded

CASES = [
    (bidirectional, layers, batch_first)
    for bidirectional in (False, True)
    for layers in (1, 2)
    for batch_first in (False, True)
]


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
@pytest.mark.parametrize(("bidirectional", "layers", "batch_first"), CASES)
def test_input_form(kind: str, layers: int, *, bidirectional: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(3, 4, layers, bidirectional=bidirectional, batch_first=batch_first)
    x = torch.randn(2, 5, 3)
    h = torch.randn(layers * (2 if bidirectional else 1), 2 if batch_first else 5, 4)
    op = "aten::gru.input" if kind == "GRU" else "aten::rnn_tanh.input"
    with torch.no_grad():
        expected = module(x, h)
        got = BRANCHES[op].function(
            None, x, h, module._flat_weights, True, layers, 0.0, False, bidirectional, batch_first
        )
    for item, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, item)


@pytest.mark.parametrize("kind", ["GRU", "RNN", "LSTM"])
@pytest.mark.parametrize(("bidirectional", "layers"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("projection", [0, 2])
def test_packed_form(kind: str, layers: int, projection: int, *, bidirectional: bool) -> None:
    if projection and kind != "LSTM":
        pytest.skip("only an LSTM has projections")
    torch.manual_seed(0)
    options = {"proj_size": projection} if projection else {}
    module = getattr(torch.nn, kind)(3, 4, layers, bidirectional=bidirectional, **options)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 3), [5, 4, 2])
    rows = layers * (2 if bidirectional else 1)
    h = torch.randn(rows, 3, projection or 4)
    c = torch.randn(rows, 3, 4)
    op = {"GRU": "aten::gru.data", "RNN": "aten::rnn_tanh.data", "LSTM": "aten::lstm.data"}[kind]
    hidden = [h, c] if kind == "LSTM" else h
    with torch.no_grad():
        out, state = module(packed, (h, c) if kind == "LSTM" else h)
        got = BRANCHES[op].function(
            None, packed.data, packed.batch_sizes, hidden, module._flat_weights, True, layers, 0.0, False, bidirectional
        )
    expected = (out.data, *(state if kind == "LSTM" else (state,)))
    for item, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, item)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("total", [None, 7])
def test_padding_a_packed_sequence_gives_what_the_cpu_gives(total: int | None, *, batch_first: bool) -> None:
    x, lengths = torch.randn(4, 5, 3), torch.tensor([5, 3, 3, 1])

    def there_and_back(data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = torch.nn.utils.rnn.pack_padded_sequence(data, lengths, batch_first=True)
        return torch.nn.utils.rnn.pad_packed_sequence(
            packed, batch_first=batch_first, padding_value=2.0, total_length=total
        )

    got: list[torch.Tensor] = []
    recorded(lambda data: got.extend(each.cpu() for each in there_and_back(data)), x)
    for mine, wanted in zip(got, there_and_back(x), strict=True):
        torch.testing.assert_close(mine, wanted)
