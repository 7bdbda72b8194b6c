"""Rewrites a graph of the CPU's, after AOTAutograd, as it would be on mps."""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opcheck.tracing.torch_private.export import FakeTensor
from opcheck.tracing.torch_private.trees import tree_map


def on_mps(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a copy of the graph whose tensors are on mps: its device arguments, its metadata, its constants."""
    # Not copy.deepcopy of the module: a constant may be a fake tensor, whose storage cannot be copied.
    moved = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
    scalars = _python_numbers(moved)
    for node in moved.graph.nodes:
        node.meta = dict(node.meta)
        if node in scalars:
            continue
        if "val" in node.meta:
            node.meta["val"] = tree_map(fake_on_mps, node.meta["val"])
        node.args = torch.fx.node.map_aggregate(node.args, _device_on_mps)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _device_on_mps)
        replacement = _ON_MPS.get(str(node.target))
        if replacement is not None:
            replacement(node)
    for node in moved.graph.find_nodes(op="get_attr"):
        value = getattr(moved, str(node.target), None)
        if isinstance(value, torch.fx.GraphModule):  # a branch of torch.cond
            setattr(moved, str(node.target), on_mps(value))
        elif isinstance(value, torch.Tensor):
            _lift(moved, node)
    moved.recompile()
    return moved


def _python_numbers(gm: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """Return the nodes that compute with floats of Python, which Inductor keeps as float64 on the CPU.

    A float that Dynamo does not specialize comes in as a tensor of no dimensions; what is computed with such tensors
    alone stays on the CPU (torch/fx/passes/_tensorify_python_scalars.py, 2.7 to 2.15).
    """
    numbers = {
        node
        for node in gm.graph.find_nodes(op="placeholder")
        if is_python_number(node.meta.get("val"))
    }
    if not numbers:
        return numbers
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim():
            continue
        tensors = [
            argument
            for argument in node.all_input_nodes
            if isinstance(argument.meta.get("val"), torch.Tensor)
        ]
        if numbers.issuperset(tensors) if tensors else is_python_number(value):
            numbers.add(node)
    return numbers


def is_python_number(value: Any) -> bool:
    """Return whether a tensor is a float of Python: mps has no float64."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64 and not value.dim()


def _lift(moved: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Make a constant an input: its values are on the CPU, and mps has no memory here."""
    last = moved.graph.find_nodes(op="placeholder")[-1]
    with moved.graph.inserting_after(last):
        lifted = moved.graph.placeholder(f"constant_{node.name}")
    lifted.meta = dict(node.meta)
    node.replace_all_uses_with(lifted)
    moved.graph.erase_node(node)


def _device_on_mps(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device("mps", 0)
    return value


def fake_on_mps(value: Any) -> Any:
    """Return the fake tensor with the same metadata on mps."""
    if not isinstance(value, FakeTensor) or value.fake_device.type != "cpu":
        return value
    with value.fake_mode:
        return torch.empty_strided(
            value.size(), value.stride(), dtype=value.dtype, device=torch.device("mps", 0)
        )


def placeholder_values(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """Return what the graph is called with where that is fake, else the values of its placeholders.

    AOTAutograd calls a backward with the strides that Inductor gave the results of the forward, which the metadata of
    its placeholders does not have.
    """
    nodes = gm.graph.find_nodes(op="placeholder")
    # Constants that were lifted come last, and have their metadata alone.
    given = itertools.chain(example_inputs, itertools.repeat(None))
    return [
        value if isinstance(value, FakeTensor) else node.meta.get("val", value)
        for node, value in zip(nodes, given, strict=False)
    ]


def _attention(node: torch.fx.Node) -> None:
    """Replace the CPU's attention by the attention that MPS runs without grad (native/transformers/attention.cpp)."""
    query, key, value, *rest = node.args
    dropout, causal = (*rest, 0.0, False)[:2]
    mask, scale = node.kwargs.get("attn_mask"), node.kwargs.get("scale")
    node.target = torch.ops.aten._scaled_dot_product_attention_math_for_mps.default
    node.args = (query, key, value, mask, dropout, causal)
    node.kwargs = {"scale": scale}


#: What the CPU's trace has and a Mac's has not: how it is put right.
_ON_MPS: dict[str, Callable[[torch.fx.Node], None]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention
}
