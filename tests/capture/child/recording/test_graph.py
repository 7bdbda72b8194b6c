"""The torch.fx graph of a run: one node a call, with its record; it can be run again."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from opcheck.capture.child.recording.graph import code, op_calls, to_graph
from opcheck.capture.child.recording.recorder import Recorder
from tests.simulator.mac import recorded


def _graph(run: Any, *inputs: torch.Tensor) -> tuple[fx.Graph, Recorder]:
    recorder = recorded(run, *inputs)
    return to_graph(recorder.calls, {}), recorder


def test_one_node_a_call_in_order() -> None:
    graph, recorder = _graph(lambda x: (x + 1).relu().sum(), torch.ones(3))
    assert [call.op for call in op_calls(graph)] == [entry.call.route.name for entry in recorder.calls]
    graph.lint()


def test_it_computes_what_was_recorded() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = torch.nn.functional.linear(x, w).split(2, dim=-1)
        return torch.cat([a * b, b.add_(1.0)], dim=0).softmax(-1)

    torch.manual_seed(0)
    inputs = torch.randn(2, 3), torch.randn(4, 3)
    graph, _ = _graph(run, *inputs)
    last = [node for node in graph.nodes if "op_call" in node.meta][-1]
    for node in graph.nodes:
        if node.op == "output":
            node.args = (last,)
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert len([node for node in graph.nodes if node.op == "placeholder"]) == 2
    torch.testing.assert_close(module(*inputs), run(*(t.clone() for t in inputs)))


def test_identities_follow_the_data() -> None:
    graph, _ = _graph(lambda x: x[0].add_(x[1]), torch.ones(2, 3))
    first, second, add = op_calls(graph)
    (base,) = {spec.storage for spec in first.inputs}
    assert {spec.storage for spec in (*first.outputs, *second.outputs, *add.inputs)} == {base}
    assert [spec.written for spec in add.inputs] == [True, False]
    assert [spec.argument for spec in add.inputs] == ["self", "other"]
    assert add.outputs[0].tensor == first.outputs[0].tensor


def test_arguments_go_by_their_names() -> None:
    graph, _ = _graph(lambda x: torch.sum(x, (0, 1), keepdim=True, dtype=torch.float16), torch.ones(2, 3))
    (call,) = op_calls(graph)
    assert call.arguments == {"dim": (0, 1), "keepdim": True, "dtype": "float16"}


def test_endless_numbers_are_words() -> None:
    graph, _ = _graph(lambda x: x.norm(float("inf")) + x.clamp(-math.inf, 1.0).sum(), torch.ones(2))
    asked = [call.arguments for call in op_calls(graph)]
    assert {"-inf", "inf"} <= {value for arguments in asked for value in arguments.values()}


def test_a_complex_number_among_the_arguments_is_its_text() -> None:
    graph, _ = _graph(lambda x: torch.addmm(x, x, x, alpha=2 + 1j), torch.ones(2, 2) * 1j)
    assert "(2+1j)" in [call.arguments.get("alpha") for call in op_calls(graph)]


def test_the_code_names_lines() -> None:
    graph, _ = _graph(lambda x: x + 1, torch.ones(3))
    assert "# tests/capture/child/recording/test_graph.py:" in code(graph)
    assert "torch.ops.aten.add.Tensor" in code(graph)


def waits(run: Any, *inputs: torch.Tensor) -> list[str]:
    graph, _ = _graph(run, *inputs)
    return [call.op for call in op_calls(graph) if call.waits]


NUMBERS, POSITIONS = torch.ones(3), torch.tensor([0, 2])


def test_indices_are_waited_for_where_they_are_masks() -> None:
    assert waits(lambda x: x[x > 0], NUMBERS) == ["aten::index.Tensor"]
    assert waits(lambda x, index: x[index], NUMBERS, POSITIONS) == []
    assert waits(lambda x: x[torch.tensor([True, False, True])], NUMBERS) == []


def test_what_is_written_by_a_mask_is_waited_for_unless_it_is_a_filling() -> None:
    def writes(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put_((x > 0,), values)

    assert waits(writes, NUMBERS, torch.ones(1)) == ["aten::index_put_"]
    assert waits(lambda x: writes(x, torch.ones(())), NUMBERS) == []
    assert waits(lambda x, index: x.index_put_((index,), -x[:2]), NUMBERS, POSITIONS) == []


def test_repeats_that_the_caller_has_added_up_are_not_waited_for() -> None:
    repeat = torch.repeat_interleave
    assert waits(repeat, POSITIONS) == ["aten::repeat_interleave.Tensor"]
    assert waits(lambda x: repeat(x, output_size=2), POSITIONS) == []
