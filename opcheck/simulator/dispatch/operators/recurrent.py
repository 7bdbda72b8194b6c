"""LSTM, GRU, RNN and recursive filters as a Mac runs them: one kernel for an LSTM, else unrolled cells.

RNN.cpp (torch 1.13 to 2.15) computes the input gates of all steps in one ``linear`` where the input is on the
CPU, which the simulated tensor seems to be to C++; on a Mac each step computes its own.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import operator
from opcheck.simulator.dispatch.operators.operator import Calls, Given, Refusal, Results, fact
from opcheck.simulator.dispatch.tensor_meta import contiguous
from opcheck.simulator.target_reads import TargetQueries, is_before

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
        """Compute ``linear_ih`` of CellParams."""
        return aten.linear.default(x, self.ih, self.bias_ih)

    def of_hidden(self, h: Tensor) -> Tensor:
        """Compute ``linear_hh`` of CellParams."""
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


def _layer(cell: Any, x: Tensor, hidden: Hidden, w: Weights, *, reverse: bool) -> tuple[Tensor, Hidden]:
    xs, outputs = list(x.unbind(0)), []
    for step in xs[::-1] if reverse else xs:
        hidden = cell(step, hidden, w)
        outputs.append(hidden[0])
    return torch.stack(outputs[::-1] if reverse else outputs, 0), hidden


def _packed_forward(cell: Any, data: Tensor, sizes: list[int], hidden: Hidden, w: Weights) -> tuple[Tensor, Hidden]:
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


def _packed_reverse(cell: Any, data: Tensor, sizes: list[int], first: Hidden, w: Weights) -> tuple[Tensor, Hidden]:
    outputs: list[Tensor] = []
    offset, last = data.size(0), sizes[-1]
    hidden = tuple(h.narrow(0, 0, last) for h in first)
    for size in reversed(sizes):
        if size > last:
            hidden = tuple(
                torch.cat([h, f.narrow(0, last, size - last)], 0) for h, f in zip(hidden, first, strict=True)
            )
        offset -= size
        last = size
        hidden = cell(data.narrow(0, offset, size), hidden, w)
        outputs.append(hidden[0])
    return torch.cat(outputs[::-1], 0), hidden


def _weights(params: Sequence[Tensor], *, biases: bool, projections: bool) -> list[Weights]:
    width = 2 + 2 * biases + projections
    groups = (params[i : i + width] for i in range(0, len(params), width))
    nothing = (None, None)
    return [
        Weights._make((*each[:2], *(each[2:4] if biases else nothing), each[-1] if projections else None))
        for each in groups
    ]


# -- branches -----------------------------------------------------------------------------------------------


def _unroll(
    cell: Any, _context: Any, x: Tensor, hx: Any, params: list[Tensor], *settings: Any, layer: Any = _layer
) -> tuple[Tensor, ...]:
    """The form ``input`` of an operator; with a ``layer`` of packed steps its form ``data``, without a batch first."""
    has_biases, _layers, dropout, train, bidirectional, batch_first = (*settings, False)[:6]
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    # An LSTM with projections has states of two sizes.
    projections = len(states) > 1 and states[0].size(2) != states[1].size(2)
    weights = _weights(params, biases=has_biases, projections=projections)
    x = x.transpose(0, 1) if batch_first else x
    hidden = list(zip(*(state.unbind(0) for state in states), strict=True))
    finals: list[Hidden] = []
    for first in range(0, len(weights), 1 + bidirectional):
        outputs = []
        for index in range(first, first + 1 + bidirectional):
            out, final = layer(cell, x, hidden[index], weights[index], reverse=index > first)
            outputs.append(out)
            finals.append(final)
        x = torch.cat(outputs, outputs[0].dim() - 1) if bidirectional else outputs[0]
        if dropout and train and len(finals) < len(weights):
            x = torch.dropout(x, dropout, train)
    ends = [torch.stack(list(state), 0) for state in zip(*finals, strict=True)]
    return (x.transpose(0, 1) if batch_first else x, *ends)


def _unrolled_packed(cell: Any, context: Any, data: Tensor, batch_sizes: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    sizes = [int(size) for size in batch_sizes.tolist()]

    def layer(cell: Any, data: Tensor, hidden: Hidden, w: Weights, *, reverse: bool) -> tuple[Tensor, Hidden]:
        return (_packed_reverse if reverse else _packed_forward)(cell, data, sizes, hidden, w)

    return _unroll(cell, context, data, *rest, layer=layer)


_LSTM_ON_MACOS_12 = (
    "Native multi-layer LSTM support in MPS available only on MacOS 13 onwards. "
    "Falling back to LSTMCell iteration. This may have performance implications."
)


def _iterates_cells(target: Target) -> bool:
    # 2.1 to 2.4: macOS 13 or a single layer (RNN.cpp); these releases start on 12.3.
    return Version(2, 1) <= target.torch < Version(2, 5) and target.macos < Version(13, 0)


@fact("branch", "aten::lstm.input")
def _lstm(context: DispatchContext, x: Tensor, hx: list[Tensor], params: list[Tensor], *rest: Any) -> Any:
    if rest[1] > 1 and context.ask(_iterates_cells):
        warnings.warn(_LSTM_ON_MACOS_12, stacklevel=2)
        return _unroll(_lstm_cell, context, x, hx, params, *rest)
    return aten._lstm_mps.default(x, hx, params, *rest)[:3]


@fact("branch", "aten::_pad_packed_sequence")
def _pad_packed(
    _context: Any, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    # PackedSequence.cpp; in C++ the lengths, which it writes on the host, would seem to be made on
    # MPS.
    sizes = [int(size) for size in batch_sizes.tolist()]
    if 0 < total_length < len(sizes):
        raise RuntimeError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {len(sizes)}"
        )
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
    return (output.transpose(0, 1) if batch_first else output), torch.tensor(lengths, dtype=torch.int64)


@fact("refuses_devices", "aten::_pad_packed_sequence", "aten::_pack_padded_sequence")
def _refuses_lengths(_args: Any, tensors: Any) -> Refusal | None:
    """PackedSequence.cpp, ``checkLongTensor``: the lengths, or the sizes of the batches, are the second tensor."""
    lengths = tensors[1]
    if operator.is_on_cpu(lengths):
        return None
    return "indices_on_mps", (
        "'lengths' argument should be a 1D CPU int64 tensor, but got "
        f"{lengths.dim()}D mps:0 {operator.scalar_type(lengths)} tensor"
    )


# -- the kernel of MPS --------------------------------------------------------------------------------------


@fact("metadata", "aten::_lstm_mps")
def _metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # mps/operations/RnnOps.mm (2.13), ``_lstm_mps``: output, h, c, z state, cell states, outputs of
    # the layers; the last three are the backward's.
    x, layers = arguments["input"], arguments["num_layers"]
    batch, steps = x.shape[:2] if arguments["batch_first"] else x.shape[1::-1]
    ways = 2 if arguments["bidirectional"] else 1
    hidden, cell = (state.shape[-1] for state in arguments["hx"])
    shapes = (
        (*x.shape[:2], hidden * ways),
        (layers * ways, batch, hidden),
        (layers * ways, batch, cell),
        (layers * ways, steps, batch, 4 * cell),
        (layers * ways, steps, batch, cell),
        (layers, steps, batch, hidden * ways),
    )
    return tuple(contiguous(shape, x.dtype) for shape in shapes)


@fact("metadata", "aten::lstm_mps_backward")
def _backward_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # RnnOps.mm: gradients of the input, of the states, and of the parameters, which have the shapes
    # of these.
    states, params = ([*map(operator.alike, arguments[name])] for name in ("hx", "params"))
    return (operator.alike(arguments["input"]), states, params)


#: of a forward LSTM with dropout: the state of the generator before it, by the address of its
#: result
_LSTM_STATES: dict[int, Tensor] = {}
_LSTM_STATES_KEPT = 256


@fact("emulate", "aten::_lstm_mps")
def _emulate(x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *rest: Any) -> Any:
    _has_biases, layers, dropout, train, bidirectional, batch_first = rest
    state = torch.get_rng_state() if dropout and train else None
    with operator.cpu_autograd() if train else torch.no_grad():
        # With a graph to make the CPU takes another kernel.
        weights = [p.detach().requires_grad_(train) for p in params]
        out, h, c = torch.lstm(x, list(hx), weights, *rest)
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    ways = 2 if bidirectional else 1
    cell = hx[1].shape[-1]
    gates = x.new_empty((layers * ways, steps, batch, 4 * cell))
    if state is not None:
        _LSTM_STATES[gates.data_ptr()] = state
        if len(_LSTM_STATES) > _LSTM_STATES_KEPT:
            _LSTM_STATES.pop(next(iter(_LSTM_STATES)))
    cells = x.new_empty((layers * ways, steps, batch, cell))
    outputs = x.new_empty((layers, steps, batch, hx[0].shape[-1] * ways))
    return out.detach(), h.detach(), c.detach(), gates, cells, outputs


@fact("emulate", "aten::lstm_mps_backward")
def _emulate_backward(*args: Any) -> Any:
    grads, gates, (x, _outputs, hx, params), rest = args[:3], args[3], args[5:9], args[9:]

    def forward(*tensors: Tensor) -> Any:
        return torch.lstm(tensors[0], list(tensors[1:3]), list(tensors[3:]), *rest)

    inputs = (x, *hx, *params)
    before, state = torch.get_rng_state(), _LSTM_STATES.get(gates.data_ptr())
    if state is not None:
        torch.set_rng_state(state)
    try:
        result = operator.gradients(forward, inputs, [True] * len(inputs), *grads)
    finally:
        torch.set_rng_state(before)
    filled = [torch.zeros_like(tensor) if grad is None else grad for grad, tensor in zip(result, inputs, strict=True)]
    return filled[0], filled[1:3], filled[3:]


@fact("body", "torchaudio::_lfilter_core_loop")
def _filter_loop(_given: Given, ask: TargetQueries) -> Calls | None:
    # src/libtorchaudio/lfilter.cpp, ``lfilter_core_generic_loop`` (torchaudio 2.9 to 2.11): these
    # and copy_ for each sample.  Earlier ones had no generic loop in C++.
    if ask(is_before, Version(2, 9)):
        return None
    return ("aten::as_strided", "aten::bmm", "aten::sub.Tensor")


for _name, _cell in (
    ("lstm", _lstm_cell),
    ("gru", _gru_cell),
    ("rnn_tanh", _simple(torch.tanh)),
    ("rnn_relu", _simple(torch.relu)),
):
    fact("branch", f"aten::{_name}.data")(functools.partial(_unrolled_packed, _cell))
    if _name != "lstm":
        fact("branch", f"aten::{_name}.input")(functools.partial(_unroll, _cell))
