"""Records of the code that Inductor generates for mps: kernels and eager operators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from opcheck.compiler.failures import line, module, operator_name
from opcheck.compiler.records import Extern, FusedNode, Kernel

if TYPE_CHECKING:
    import torch

_BUFFER = re.compile(r"^\s*(?:device|constant)\s+[\w:]+\s*[*&]", re.MULTILINE)
_THREADGROUP = re.compile(r"threadgroup\s+(?P<type>[\w:]+)\s+\w+\[(?P<count>[^\]]+)\]")

_SIZES = {
    "bool": 1, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "bfloat": 2,
    "int": 4, "uint": 4, "float": 4, "long": 8, "ulong": 8, "float2": 8, "float3": 16, "float4": 16,
}  # fmt: skip


def kernel_of(name: str, source: str, schedule: Any, kernel: Any) -> Kernel:
    """Return what MetalScheduling.define_kernel is called with."""
    body = source.partition("compile_mps_shader('''")[2].rpartition("''')")[0]
    lines = [line for line in body.splitlines() if not line.lstrip().startswith("#include")]
    text = "\n".join(lines).replace("kernel void generated_kernel(", f"kernel void {name}(")
    return Kernel(
        name=name,
        source=text.strip("\n") + "\n",
        headers=tuple(sorted(kernel.headers)),
        nodes=_fused(schedule),
        buffers=_buffers(text),
        threadgroup_bytes=_threadgroup(text),
    )


def _buffers(source: str) -> int:
    """Count the buffers among the kernel's arguments."""
    return len(_BUFFER.findall(source.partition("kernel void")[2].partition(") {")[0]))


def _threadgroup(source: str) -> int:
    return sum(map(_threadgroup_size, _THREADGROUP.finditer(source)))


def _threadgroup_size(match: re.Match[str]) -> int:
    count = match["count"].strip()
    return _SIZES.get(match["type"].rpartition("::")[2], 4) * int(count) if count.isdigit() else 0


def _fused(schedule: Any) -> tuple[FusedNode, ...]:
    """Return the nodes of the graph that went into a kernel, in the order of the graph."""
    nodes: dict[str, torch.fx.Node] = {}
    for entry in schedule:
        origins = getattr(getattr(entry, "node", None), "origins", ())
        nodes.update({node.name: node for node in origins if node.op == "call_function"})
    return tuple(map(_fused_node, sorted(nodes.values())))


def _fused_node(node: torch.fx.Node) -> FusedNode:
    return FusedNode(
        name=node.name, op=operator_name(node), location=line(node), module=module(node)
    )


def extern_of(kernel: Any) -> Extern:
    """Record the operator that an ExternKernel of Inductor's calls."""
    overload = getattr(kernel, "op_overload", None)
    origins = [node for node in getattr(kernel, "origins", ()) if node.op == "call_function"]
    origin = max(origins, default=None)
    op = overload.name() if overload is not None and hasattr(overload, "name") else ""
    if not op and origin is not None:
        op = operator_name(origin)
    dtype = str(kernel.get_dtype()).removeprefix("torch.") if _has_dtype(kernel) else ""
    return Extern(
        op=op or str(kernel.python_kernel_name),
        dtypes=(dtype,) if dtype else (),
        location=None if origin is None else line(origin),
        module="" if origin is None else module(origin),
    )


def _has_dtype(kernel: Any) -> bool:
    try:
        kernel.get_dtype()
    except (NotImplementedError, AttributeError):
        return False
    return True


def flex_kernel(node: Any) -> Kernel:
    """Record a MetalFlexAttentionNode, whose shader a template generates."""
    source = str(node.shader_source)
    return Kernel(
        name="metal_flex_attention",
        source=source.strip("\n") + "\n",
        nodes=(_fused_node(max(node.origins)),),
        buffers=_buffers(source),
        threadgroup_bytes=_threadgroup(source),
    )
