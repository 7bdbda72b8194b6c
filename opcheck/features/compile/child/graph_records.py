"""Records of one graph compiled for mps: kernels, eager operators, and why it did not compile."""

import contextlib
import copy
import itertools
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from opcheck.common.yaml_text import load_shipped
from opcheck.features.compile.compile_records import CompileFailure, Extern, FusedNode, MetalKernel
from opcheck.model.records import SourceLocation
from opcheck.tracing.source_locations import locate_in_text
from opcheck.tracing.torch_private.export import FakeTensor
from opcheck.tracing.torch_private.trees import tree_map

#: Messages that compiling without a Mac makes, and a Mac does not; what each means, by a code of its own.
_OURS: dict[str, dict[str, str]] = load_shipped(Path(__file__).with_name("harness_limits.yaml"))
_DTYPE = re.compile(r"KeyError: torch\.(?P<dtype>\w+)|(?P<plain>float64) is not supported by MPS")
#: of a special function; the message of the others is empty, and the method names what is missing (codegen/mps.py)
_LACKING = re.compile(r"MetalOverrides does not implement ops\.(?P<name>\w+)")
#: as compile.yaml recognises it
_PASSED = ", where Dynamo passes floats of Python"


def failure(error: BaseException, gm: torch.fx.GraphModule) -> CompileFailure:
    """Return what Inductor raised for this graph: its kind, the operator that it stopped at, the user's line."""
    cause = error
    while getattr(cause, "inner_exception", None) is not None:
        cause = cause.inner_exception  # type: ignore[attr-defined]  # torch._inductor.exc.InductorError
    text = " ".join(f"{type(cause).__name__}: {cause}".split())
    dtype = _DTYPE.search(text)
    node = (_first_of(dtype, gm) if dtype else None) or _blamed_node(error, gm)
    op = "" if node is None else operator_name(node)
    blamed = CompileFailure(kind="inductor", message=text[:500], op=op, **place(node))
    for code, limit in _OURS.items():
        if match := re.search(limit["pattern"], text):
            message = f"not checked ({code}): {': '.join((limit['meaning'], *match.groups()))}"
            return replace(blamed, kind="harness", message=message, ours=True)
    if dtype:
        name = dtype["dtype"] or dtype["plain"]
        inputs = gm.graph.find_nodes(op="placeholder")
        numbers = any(is_python_number(each.meta.get("val")) for each in inputs)
        passed = _PASSED if name == "float64" and numbers else ""
        message = f"Inductor's Metal backend has no {name}{passed}"
        return replace(blamed, kind="dtype", message=message)
    if isinstance(cause, NotImplementedError):
        lacking = _LACKING.search(text)
        named = lacking["name"] if lacking else traceback.extract_tb(cause.__traceback__)[-1].name
        plain = lacking or not str(cause)
        message = f"Inductor's Metal backend does not implement {named}" if plain else text
        return replace(blamed, kind="operator", message=message)
    return blamed


def _first_of(dtype: re.Match[str], gm: torch.fx.GraphModule) -> torch.fx.Node | None:
    """Return where the dtype comes into the graph: Inductor may fuse its lowering with later nodes."""
    number = getattr(torch, dtype["dtype"] or dtype["plain"], None)
    for node in gm.graph.nodes:
        if node.op == "call_function" and getattr(node.meta.get("val"), "dtype", None) == number:
            return node
    return None


def _blamed_node(error: BaseException, gm: torch.fx.GraphModule) -> torch.fx.Node | None:
    """Return the node of the graph that was being lowered or generated, by the frames of the error."""
    by_name = {node.name: node for node in gm.graph.nodes}
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in list(frame.f_locals.values()):
            if isinstance(value, torch.fx.Node) and value.name in by_name:
                return by_name[value.name]
            # Not getattr: a handler of Inductor's operators answers to every name, with a warning.
            inner = vars(value).get("node") if hasattr(value, "__dict__") else None
            origins = getattr(inner, "origins", None)
            named = [by_name[node.name] for node in origins or () if node.name in by_name]
            called = [node for node in named if node.op == "call_function"]
            if called:
                return max(called)
    return None


def operator_name(node: torch.fx.Node) -> str:
    """Return the dispatcher's spelling of a node's operator."""
    return node.target.name() if hasattr(node.target, "name") else str(node.target)


def module(node: torch.fx.Node) -> str:
    """Return the path of the innermost module that called a node's origin; for a backward node, that of its forward."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    # L['self'].encoder.layers.0: the outermost module's variable names nothing (torch/_dynamo/source.py).
    inner = _VARIABLE.sub("", paths[-1]) if paths else ""
    return ".".join(step for step in _STEP.findall(inner) if step != "_modules")


_VARIABLE = re.compile(r"^[LG]\[['\"]\w+['\"]\]")
_STEP = re.compile(r"\w+")


def line(node: torch.fx.Node) -> SourceLocation | None:
    """Return the user's line that the node comes from."""
    return locate_in_text(node.stack_trace)


def place(node: torch.fx.Node | None) -> dict[str, Any]:
    """Return the user's line and the module of a node, as fields of a record; empty where there is no node."""
    return {"location": line(node), "module": module(node)} if node is not None else {}


_BUFFER = re.compile(r"^\s*(?:device|constant)\s+[\w:]+\s*[*&]", re.MULTILINE)
#: The source of a kernel in the wrapper's Python (codegen/mps.py; \"\"\" in 2.7, ''' from 2.8 on).
_SHADER = re.compile(r"compile_mps_shader\((?P<quote>\"\"\"|''')(?P<text>.*)(?P=quote)\)", re.DOTALL)
_PACKAGED = re.compile(r'R"MTL\(.*\n(?P<kernel>(?: *\[\[[^\n]*\n)? *kernel void .*)\)MTL"', re.DOTALL)
HEADER = re.compile(r"^\s*#include <c10/metal/(\w+)\.h>", re.MULTILINE)
#: dimensions of a batch of images
_IMAGES = 4
#: A call with many tensors, such as an optimizer's, is cut.
_LONGEST_CALL = 2000
#: what runs attention on mps without grad (native/transformers/attention.cpp)
MPS_ATTENTION = "aten::_scaled_dot_product_attention_math_for_mps"
#: what a kernel is called in a library of its own
GENERATED = "generated_kernel"
_THREADGROUP = re.compile(r"threadgroup\s+(?P<type>[\w:]+)\s+\w+\[(?P<count>[^\]]+)\]")

_SIZES: dict[str, int] = load_shipped(Path(__file__).with_name("metal_sizes.yaml"))


def kernel_of(name: str, source: str, schedule: Any) -> MetalKernel:
    """Return what MetalScheduling.define_kernel is called with."""
    written = _SHADER.search(source)
    body = written["text"] if written else source
    # For AOTInductor the text has the headers.
    packaged = _PACKAGED.search(body)
    body = packaged["kernel"] if packaged else body
    headers = HEADER.findall(body)
    # Up to 2.11 each kernel has a library of its own, mps_lib_0, mps_lib_1 ..., and is called generated_kernel there.
    name = name.partition(".")[0]
    lines = [line for line in body.splitlines() if not line.lstrip().startswith("#include")]
    text = "\n".join(lines).replace(f"kernel void {GENERATED}(", f"kernel void {name}(")
    return _kernel(name, text, _fused_nodes(schedule), tuple(sorted({*headers})))


def _kernel(name: str, text: str, nodes: tuple[FusedNode, ...], headers: tuple[str, ...] = ()) -> MetalKernel:
    return MetalKernel(
        name=name,
        source=text.strip("\n") + "\n",
        headers=headers,
        nodes=nodes,
        buffers=_buffers(text),
        threadgroup_bytes=sum(map(_threadgroup_size, _THREADGROUP.finditer(text))),
    )


def _buffers(source: str) -> int:
    """Count the buffers among the kernel's arguments."""
    return len(_BUFFER.findall(source.partition("kernel void")[2].partition(") {")[0]))


def _threadgroup_size(match: re.Match[str]) -> int:
    count = match["count"].strip()
    return _SIZES.get(match["type"].rpartition("::")[2], 4) * int(count) if count.isdigit() else 0


def _fused_nodes(schedule: Any) -> tuple[FusedNode, ...]:
    """Return the nodes of the graph that went into a kernel, in the order of the graph."""
    nodes: dict[str, torch.fx.Node] = {}
    for entry in schedule:
        origins = getattr(getattr(entry, "node", None), "origins", ())
        nodes.update({node.name: node for node in origins if node.op == "call_function"})
    return tuple(map(_fused_node, sorted(nodes.values())))


def _fused_node(node: torch.fx.Node) -> FusedNode:
    op, call = operator_name(node), call_text(node)
    return FusedNode(name=node.name, op=op, call=call, **place(node))


def extern_of(kernel: Any) -> Extern:
    """Record the operator that an ExternKernel of Inductor's calls."""
    overload: Any = getattr(kernel, "op_overload", None)
    origins = [node for node in getattr(kernel, "origins", ()) if node.op == "call_function"]
    origin = max(origins, default=None)
    op = overload.name() if hasattr(overload, "name") else "" if origin is None else operator_name(origin)
    dtype = ""
    with contextlib.suppress(NotImplementedError, AttributeError):
        dtype = str(kernel.get_dtype()).removeprefix("torch.")
    return Extern(
        op=op or str(kernel.python_kernel_name),
        dtypes=(dtype,) if dtype else (),
        call="" if origin is None else call_text(origin) + _order(kernel),
        **place(origin),
    )


def _order(kernel: Any) -> str:
    """Return `` channels_last`` if Inductor hands over a tensor of images in that order."""
    for tensor in getattr(kernel, "inputs", ()):
        layout = getattr(tensor, "layout", None) or getattr(getattr(tensor, "data", None), "layout", None)
        size: Any = getattr(layout, "size", ())
        stride: Any = getattr(layout, "stride", ())
        if len(size) == _IMAGES and stride[1] == 1 and size[1] != 1:
            return " channels_last"
    return ""


def attention_of(gm: torch.fx.GraphModule) -> tuple[Extern, ...]:
    """Return the calls of attention in a graph of Dynamo's that the CPU takes apart and mps, without grad, does not.

    The CPU's one kernel wants values of the queries' last dimension (native/transformers/sdp_utils_cpp.h).
    """
    found = []
    for node in gm.graph.nodes:
        if node.target is not torch.nn.functional.scaled_dot_product_attention:
            continue
        tensors = (*node.args[:1], *(node.kwargs[n] for n in ("query", "value") if n in node.kwargs), *node.args[2:3])
        query, value = (getattr(tensor, "meta", {}).get("example_value") for tensor in tensors)
        if query is not None and value is not None and query.shape[-1] != value.shape[-1]:
            dtype = str(query.dtype).removeprefix("torch.")
            found.append(Extern(op=MPS_ATTENTION, dtypes=(dtype,), call=call_text(node), **place(node)))
    return tuple(found)


def call_text(node: torch.fx.Node) -> str:
    """Return a call of the graph in a line: ``aten.mm.default(float32[2, 3], float32[3, 4])``."""
    arguments = [_argument_text(value) for value in node.args]
    arguments += [f"{name}={_argument_text(value)}" for name, value in node.kwargs.items()]
    # An overload is written with its namespace.
    name = node.target if hasattr(node.target, "name") else getattr(node.target, "__name__", node.target)
    return f"{name}({', '.join(arguments)})"[:_LONGEST_CALL]


def _argument_text(value: Any) -> str:
    meta = getattr(value, "meta", None)
    tensor: Any = None
    if isinstance(meta, dict):
        # Dynamo's graphs have example values.
        tensor = meta.get("val", meta.get("example_value"))
    if tensor is not None and hasattr(tensor, "shape"):
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = ", ".join(map(str, tensor.shape))
        if tensor.is_contiguous():
            return f"{dtype}[{shape}]"
        permuted = " permuted" if _is_permuted(tensor) else ""
        return f"{dtype}[{shape}; {', '.join(map(str, tensor.stride()))}{permuted}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument_text, value))}]"
    return str(value)


def _is_permuted(tensor: Any) -> bool:
    """Return whether the dimensions are in another order than in memory; a size that is not a number counts."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [stride for size, stride in pairs if str(size) != "1" and str(stride) != "0"]
    try:
        return any(bool(first < second) for first, second in itertools.pairwise(strides))
    except Exception:  # a symbolic relation that cannot be decided
        return True


def flex_kernel(node: Any) -> MetalKernel:
    """Record a MetalFlexAttentionNode, whose shader a template generates."""
    return _kernel("metal_flex_attention", str(node.shader_source), (_fused_node(max(node.origins)),))


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
    inputs = gm.graph.find_nodes(op="placeholder")
    numbers = {node for node in inputs if is_python_number(node.meta.get("val"))}
    if not numbers:
        return numbers
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim():
            continue
        inputs = node.all_input_nodes
        tensors = [each for each in inputs if isinstance(each.meta.get("val"), torch.Tensor)]
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
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=torch.device("mps", 0))


def placeholder_values(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """Return what the graph is called with where that is fake, else the values of its placeholders.

    AOTAutograd calls a backward with the strides that Inductor gave the results of the forward, which the metadata of
    its placeholders does not have.
    """
    nodes = gm.graph.find_nodes(op="placeholder")
    # Constants that were lifted come last, and have their metadata alone.
    given = itertools.chain(example_inputs, itertools.repeat(None))
    pairs = zip(nodes, given, strict=False)
    return [value if isinstance(value, FakeTensor) else node.meta.get("val", value) for node, value in pairs]


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
