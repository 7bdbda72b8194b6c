"""Small AIR libraries, written here: a kernel in LLVM's assembly, its metadata, the container."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

#: A kernel of one operation a thread: out[i] = the body's %r of %x = in[i].
UNARY = """
declare float @air.exp.f32(float) #0
declare float @air.fabs.f32(float) #0
declare float @air.fma.f32(float, float, float) #0
declare float @llvm.fmuladd.f32(float, float, float)
define weak_odr void @{name}(ptr addrspace(1) noundef "air-buffer-no-alias" %out, ptr addrspace(2) noundef %in, i32 noundef %i) #1 {{
  %w = zext i32 %i to i64
  %p = getelementptr inbounds {type}, ptr addrspace(2) %in, i64 %w
  %x = load {type}, ptr addrspace(2) %p, align 4
{body}
  %q = getelementptr inbounds {type}, ptr addrspace(1) %out, i64 %w
  store {type} %r, ptr addrspace(1) %q, align 4
  ret void
}}
attributes #0 = {{ mustprogress nofree nosync nounwind willreturn memory(none) }}
attributes #1 = {{ convergent mustprogress nounwind }}
"""

#: out[group] = the sum of the lanes' values, by the action; 40 threads are more than a simdgroup.
GROUP = """
@shared = internal unnamed_addr addrspace(3) global [2 x float] undef, align 4
declare void @air.wg.barrier(i32, i32) #0
declare float @air.simd_sum.f32(float) #0
define weak_odr void @{name}(ptr addrspace(1) noundef %out, ptr addrspace(2) noundef %in, i32 noundef %i, i32 noundef %lane, i32 noundef %simd, i32 noundef %group) #0 {{
  %w = zext i32 %i to i64
  %p = getelementptr inbounds float, ptr addrspace(2) %in, i64 %w
  %x = load float, ptr addrspace(2) %p, align 4
  %s = call float @air.simd_sum.f32(float %x) #0
  %first = icmp eq i32 %lane, 0
  br i1 %first, label %put, label %wait
put:
  %sw = zext i32 %simd to i64
  %sp = getelementptr inbounds [2 x float], ptr addrspace(3) @shared, i64 0, i64 %sw
  store float %s, ptr addrspace(3) %sp, align 4
  br label %wait
wait:
  {barrier}
  %t = icmp eq i32 %lane, 1
  br i1 %t, label %add, label %end
add:
  %a = load float, ptr addrspace(3) @shared, align 4
  %bp = getelementptr inbounds [2 x float], ptr addrspace(3) @shared, i64 0, i64 1
  %b = load float, ptr addrspace(3) %bp, align 4
  %c = fadd float %a, %b
  %gw = zext i32 %group to i64
  %gp = getelementptr inbounds float, ptr addrspace(1) %out, i64 %gw
  store float %c, ptr addrspace(1) %gp, align 4
  br label %end
end:
  ret void
}}
attributes #0 = {{ convergent nounwind willreturn memory(none) }}
"""
BARRIER = "call void @air.wg.barrier(i32 2, i32 1) #0"
_BUFFER = (
    '!"air.buffer", !"air.location_index", i32 {0}, i32 1, !"air.{1}", !"air.address_space", '
    'i32 {2}, !"air.arg_type_size", i32 4, !"air.arg_type_name", !"float", !"air.arg_name", !"{3}"'
)
BUFFERS = (_BUFFER.format(0, "read_write", 1, "output"), _BUFFER.format(1, "read", 2, "input"))
THREAD = '!"air.thread_position_in_grid", !"air.arg_type_name", !"uint", !"air.arg_name", !"index"'
LANES = tuple(
    f'!"air.{kind}", !"air.arg_type_name", !"uint", !"air.arg_name", !"{name}"'
    for kind, name in (
        ("thread_index_in_simdgroup", "lane"),
        ("simdgroup_index_in_threadgroup", "simd"),
        ("threadgroup_position_in_grid", "group"),
    )
)


def air(text: str, name: str, arguments: Sequence[str], denormals: str = "denorms_disable") -> str:
    """The module of a kernel, with the metadata of its arguments, and what was compiled in."""
    nodes = [f"!{number + 3} = !{{i32 {number}, {node}}}" for number, node in enumerate(arguments)]
    listed = ", ".join(f"!{number + 3}" for number in range(len(arguments)))
    head = [
        "!air.kernel = !{!0}",
        f"!0 = !{{ptr @{name}, !1, !2}}",
        "!1 = !{}",
        "!air.compile_options = !{!99}",
        f'!99 = !{{!"air.compile.{denormals}"}}',
        f"!2 = !{{{listed}}}",
    ]
    return "\n".join([text, *head, *nodes, ""])


def unary(name: str, body: str, kind: str = "float", denormals: str = "denorms_disable") -> str:
    """A kernel that gives %r for %x."""
    text = UNARY.format(name=name, body=body, type=kind)
    return air(text, name, [*BUFFERS, THREAD], denormals)


def group(name: str, barrier: str = BARRIER) -> str:
    """A kernel that adds up the values of a threadgroup of two simdgroups."""
    return air(GROUP.format(name=name, barrier=barrier), name, [*BUFFERS, THREAD, *LANES])


def metallib(modules: Mapping[str, str]) -> bytes:
    """A container of kernels, by name: their assembly as bitcode."""
    entries, code = b"", b""
    for name, text in modules.items():
        bitcode = llvm.parse_assembly(text).as_bitcode()
        tags = (
            (b"NAME", name.encode() + b"\0"),
            (b"TYPE", b"\2"),
            (b"HASH", hashlib.sha256(bitcode).digest()),
            (b"MDSZ", struct.pack("<Q", len(bitcode))),
            (b"OFFT", struct.pack("<3Q", 0, 0, len(code))),
        )
        entry = b"".join(tag + struct.pack("<H", len(value)) + value for tag, value in tags)
        entries += struct.pack("<I", len(entry) + 8) + entry + b"ENDT"
        code += bitcode
    functions = struct.pack("<I", len(modules)) + entries
    head = 88
    after = head + len(functions)
    numbers = (after + len(code), head, len(functions), after, 0, after, 0, after, len(code))
    return b"MTLB" + bytes(12) + struct.pack("<9Q", *numbers) + functions + code


def dylib(sections: Mapping[str, bytes]) -> bytes:
    """A Mach-O file of one segment with these sections."""
    header = 32 + 72 + 80 * len(sections)
    described, body = b"", b""
    for name, data in sections.items():
        described += name.encode().ljust(16, b"\0") + b"__TEXT".ljust(16, b"\0")
        described += struct.pack("<QQI", 0, len(data), header + len(body)) + bytes(28)
        body += data
    command = struct.pack("<II", 0x19, 72 + len(described)) + b"__TEXT".ljust(16, b"\0")
    command += bytes(40) + struct.pack("<2I", len(sections), 0) + described
    return struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 1, len(command), 0, 0) + command + body
