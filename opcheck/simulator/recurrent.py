"""GRU, RNN and packed LSTM as a Mac runs them: unrolled cells, with the input gates computed step by step.

RNN.cpp (torch 1.13 to 2.15) computes the input gates of all steps in one ``linear`` where the input is on the
CPU, which the simulated tensor seems to be to C++.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Tensor = torch.Tensor
#: (h,) or, for an LSTM, (h, c)
Hidden = tuple[Tensor, ...]
aten = torch.ops.aten


class Weights(NamedTuple):
    """The parameters of one direction of one layer."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    hr: Tensor | None

    def of_input(self, x: Tensor) -> Tensor:
        """``linear_ih`` of CellParams."""
        return aten.linear.default(x, self.ih, self.bias_ih)

    def of_hidden(self, h: Tensor) -> Tensor:
        """``linear_hh`` of CellParams."""
        return aten.linear.default(h, self.hh, self.bias_hh)


def _simple(activation: Callable[[Tensor], Tensor]) -> Any:
    def cell(x: Tensor, hidden: Hidden, w: Weights) -> Hidden:
        return (activation(w.of_hidden(hidden[0]).add_(w.of_input(x))),)

    return cell


def _gru_cell(x: Tensor, hidden: Hidden, w: Weights) -> Hidden:
    (h,) = hidden
    in_reset, in_input, in_new = w.of_input(x).unsafe_chunk(3, 1)
    h_reset, h_input, h_new = w.of_hidden(h).unsafe_chunk(3, 1)
    reset = h_reset.add_(in_reset).sigmoid_()
    gate = h_input.add_(in_input).sigmoid_()
    new = in_new.add(h_new.mul_(reset)).tanh_()
    return ((h - new).mul_(gate).add_(new),)


def _lstm_cell(x: Tensor, hidden: Hidden, w: Weights) -> Hidden:
    h, c = hidden
    gates = w.of_hidden(h).add_(w.of_input(x)).unsafe_chunk(4, 1)
    into, forget, out = gates[0].sigmoid_(), gates[1].sigmoid_(), gates[3].sigmoid_()
    cell = gates[2].tanh_()
    new_c = (forget * c).add_(into * cell)
    new_h = out * new_c.tanh()
    return (new_h if w.hr is None else aten.linear.default(new_h, w.hr), new_c)


def _steps(
    cell: Any, xs: Sequence[Tensor], hidden: Hidden, w: Weights
) -> tuple[list[Tensor], Hidden]:
    outputs = []
    for x in xs:
        hidden = cell(x, hidden, w)
        outputs.append(hidden[0])
    return outputs, hidden


def _layer(
    cell: Any, x: Tensor, hidden: Hidden, w: Weights, *, reverse: bool
) -> tuple[Tensor, Hidden]:
    xs = list(x.unbind(0))
    outputs, hidden = _steps(cell, xs[::-1] if reverse else xs, hidden, w)
    return torch.stack(outputs[::-1] if reverse else outputs, 0), hidden


def _packed(cell: Any, sizes: list[int]) -> Any:
    def layer(
        _cell: Any, data: Tensor, hidden: Hidden, w: Weights, *, reverse: bool
    ) -> tuple[Tensor, Hidden]:
        forward = _packed_reverse if reverse else _packed_forward
        return forward(cell, data, sizes, hidden, w)

    return layer


def _packed_forward(
    cell: Any, data: Tensor, sizes: list[int], hidden: Hidden, w: Weights
) -> tuple[Tensor, Hidden]:
    outputs, finished = [], []
    offset, last = 0, sizes[0]
    for size in sizes:
        x = data.narrow(0, offset, size)
        offset += size
        if size < last:
            finished.append(tuple(h.narrow(0, size, last - size) for h in hidden))
            hidden = tuple(h.narrow(0, 0, size) for h in hidden)
        last = size
        hidden = cell(x, hidden, w)
        outputs.append(hidden[0])
    finished.append(hidden)
    ends = zip(*reversed(finished), strict=True)
    return torch.cat(outputs, 0), tuple(torch.cat(list(end), 0) for end in ends)


def _packed_reverse(
    cell: Any, data: Tensor, sizes: list[int], first: Hidden, w: Weights
) -> tuple[Tensor, Hidden]:
    outputs: list[Tensor] = []
    offset, last = data.size(0), sizes[-1]
    hidden = tuple(h.narrow(0, 0, last) for h in first)
    for size in reversed(sizes):
        if size > last:
            hidden = tuple(
                torch.cat([h, f.narrow(0, last, size - last)], 0)
                for h, f in zip(hidden, first, strict=True)
            )
        offset -= size
        last = size
        hidden = cell(data.narrow(0, offset, size), hidden, w)
        outputs.append(hidden[0])
    return torch.cat(outputs[::-1], 0), hidden


def _weights(params: Sequence[Tensor], *, biases: bool, projections: bool) -> list[Weights]:
    width = 2 + 2 * biases + projections
    groups = [params[i : i + width] for i in range(0, len(params), width)]
    return [
        Weights(
            group[0],
            group[1],
            group[2] if biases else None,
            group[3] if biases else None,
            group[-1] if projections else None,
        )
        for group in groups
    ]


def _stack(
    layer: Any,
    cell: Any,
    x: Tensor,
    hidden: list[Hidden],
    weights: list[Weights],
    *,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, list[Hidden]]:
    ways = 2 if bidirectional else 1
    layers = len(weights) // ways
    finals: list[Hidden] = []
    for number in range(layers):
        outputs = []
        for way in range(ways):
            index = number * ways + way
            out, final = layer(cell, x, hidden[index], weights[index], reverse=way == 1)
            outputs.append(out)
            finals.append(final)
        x = torch.cat(outputs, outputs[0].dim() - 1) if bidirectional else outputs[0]
        if dropout and train and number < layers - 1:
            x = torch.dropout(x, dropout, train)
    return x, finals


def _input(cell: Any) -> Callable[..., Any]:
    def twin(
        x: Tensor,
        hx: Tensor,
        params: list[Tensor],
        has_biases: bool,
        _num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, Tensor]:
        x = x.transpose(0, 1) if batch_first else x
        out, finals = _stack(
            _layer,
            cell,
            x,
            [(h,) for h in hx.unbind(0)],
            _weights(params, biases=has_biases, projections=False),
            dropout=dropout,
            train=train,
            bidirectional=bidirectional,
        )
        return out.transpose(0, 1) if batch_first else out, torch.stack([h for (h,) in finals], 0)

    return twin


def lstm_cells(
    x: Tensor,
    hx: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    _num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """``lstm.input`` without the kernel of MPS, where a release or a macOS does without it."""
    x = x.transpose(0, 1) if batch_first else x
    out, finals = _stack(
        _layer,
        _lstm_cell,
        x,
        list(zip(*(state.unbind(0) for state in hx), strict=True)),
        _weights(params, biases=has_biases, projections=hx[0].size(2) != hx[1].size(2)),
        dropout=dropout,
        train=train,
        bidirectional=bidirectional,
    )
    h, c = (torch.stack(list(state), 0) for state in zip(*finals, strict=True))
    return out.transpose(0, 1) if batch_first else out, h, c


def _data(cell: Any) -> Callable[..., Any]:
    def twin(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Tensor | list[Tensor],
        params: list[Tensor],
        has_biases: bool,
        _num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[Tensor, ...]:
        states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
        projections = len(states) > 1 and states[0].size(2) != states[1].size(2)
        out, finals = _stack(
            _packed(cell, [int(size) for size in batch_sizes.tolist()]),
            cell,
            data,
            list(zip(*(state.unbind(0) for state in states), strict=True)),
            _weights(params, biases=has_biases, projections=projections),
            dropout=dropout,
            train=train,
            bidirectional=bidirectional,
        )
        return (out, *(torch.stack(list(state), 0) for state in zip(*finals, strict=True)))

    return twin


def _pad_packed(
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    # PackedSequence.cpp; in C++ the lengths, which it writes on the host, would seem to be made on MPS.
    sizes = [int(size) for size in batch_sizes.tolist()]
    if 0 < total_length < len(sizes):
        message = (
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
        raise RuntimeError(message)
    shape = [max(total_length, len(sizes)), sizes[0], *data.shape[1:]]
    output = torch.full(shape, padding_value, dtype=data.dtype, device=data.device)
    offset = start = 0
    lengths: list[int] = []
    for step, size in enumerate([*sizes[1:], 0], start=1):
        before = sizes[step - 1]
        if size != before:
            rows = before * (step - start)
            part = data[offset : offset + rows].view([step - start, before, *data.shape[1:]])
            output[start:step, :before].copy_(part)
            offset, start = offset + rows, step
        lengths[:0] = [step] * (before - size)
    result = output.transpose(0, 1) if batch_first else output
    return result, torch.tensor(lengths, dtype=torch.int64)


_TANH, _RELU = _simple(torch.tanh), _simple(torch.relu)

#: operator overload -> twin, the same for every release.
TWINS: dict[str, Callable[..., Any]] = {
    "aten::gru.input": _input(_gru_cell),
    "aten::gru.data": _data(_gru_cell),
    "aten::rnn_tanh.input": _input(_TANH),
    "aten::rnn_tanh.data": _data(_TANH),
    "aten::rnn_relu.input": _input(_RELU),
    "aten::rnn_relu.data": _data(_RELU),
    "aten::lstm.data": _data(_lstm_cell),
    "aten::_pad_packed_sequence": _pad_packed,
}
