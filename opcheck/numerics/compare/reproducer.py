"""Writes the first wrong call as a program of its own: its inputs and a script that needs torch alone."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from opcheck.common.errors import UsageError
from opcheck.common.text import filesize
from opcheck.data.device_evidence import Machine
from opcheck.numerics.closeness import dtype_name
from opcheck.numerics.compare.compare_mode import Judged
from opcheck.numerics.compare.records import BEYOND, TIMES, TOLERANCES
from opcheck.numerics.compare.reference import FORMULAS, in_float64
from opcheck.numerics.float64 import WIDE
from opcheck.numerics.kept_tensors import KeptTensor
from opcheck.tracing.torch_private import dispatch

SCRIPT, INPUTS = "repro.py", "inputs.pt"
#: bytes of inputs that are written
LIMIT = 1 << 30

_TEMPLATE = '''\
"""{op} on {device} beside float64 on the CPU.

Written by opcheck on {os} {os_version} {arch}, {device_name}, torch {torch} ({commit}).
Run it as: python repro.py [DEVICE].  Exits with 1 where the device differs, with 0 where it does not.
"""

import pathlib
import sys

import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "{device}"
# Shares of the exact element and of the root mean square of the result; how many times that is allowed.
RELATIVE, OF_ALL, TIMES = {relative!r}, {targets_of!r}, {times!r}
WIDE = {wide}
INPUTS = torch.load(pathlib.Path(__file__).with_name("inputs.pt"), weights_only=True)
# Full precision, as it was compared.
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def make(device, wide):
    def t(name, size, stride, offset, conj=False, neg=False):
        memory = INPUTS[name]
        memory = memory.to(WIDE.get(memory.dtype, memory.dtype) if wide else memory.dtype)
        there = torch.zeros(offset + memory.numel(), dtype=memory.dtype, device=device)
        there[offset:] = memory.to(device)
        view = there.as_strided(size, stride, offset)
        view = torch._neg_view(view) if neg else view
        return view.conj() if conj else view

    def d(dtype):
        return WIDE.get(dtype, dtype) if wide else dtype

    return {arguments}


def run(device, wide):
    args, kwargs = make(device, wide)
    result = torch.ops.{call}(*args, **kwargs)
    found = {{id(one): one for one in flat([result, {written}])}}
    return list(found.values())[{output}].detach().cpu()


def flat(value):
    if isinstance(value, (tuple, list)):
        return [one for part in value for one in flat(part)]
    return [value] if isinstance(value, torch.Tensor) else []


found, exact = run(DEVICE, False), {reference}
print("{op}, result {output}, on", DEVICE, "with torch", torch.__version__)
if found.shape != exact.shape:
    sys.exit(f"the shapes differ: {{tuple(found.shape)}}, and on the CPU {{tuple(exact.shape)}}")
if found.is_floating_point() or found.is_complex():
    kind = torch.complex128 if found.is_complex() else torch.float64
    found, exact = found.to(kind), exact.to(kind)
    finite = torch.isfinite(found) & torch.isfinite(exact)
    scale = exact[finite].abs().square().mean().sqrt() if finite.any() else 0.0
    error = (found - exact).abs() / (RELATIVE * exact.abs() + OF_ALL * scale + 1e-45)
    broken = (torch.isnan(found) != torch.isnan(exact)) | (torch.isinf(found) != torch.isinf(exact))
    error = error.where(finite, 0.0).masked_fill(broken, float("inf"))
else:
    error = (found.to(exact.dtype) != exact).double() * float("inf")
    error = error.nan_to_num(0.0, float("inf"))
worst = int(error.flatten().argmax())
print("device:", found.flatten()[worst].item(), " float64 on the CPU:", exact.flatten()[worst].item())
beyond = f"{{int((error > TIMES).sum())}} of {{error.numel()}} elements beyond"
print(f"distance: {{error.flatten()[worst].item():.4g}} tolerances, {{beyond}}")
sys.exit(1 if error.flatten()[worst] > TIMES else 0)
'''


def write(judged: Judged, machine: Machine, folder: Path) -> None:
    """Write the folder, whole or not at all.

    Raises:
        UsageError: the inputs are too large, or it cannot be written.
    """
    tensors: dict[str, torch.Tensor] = {}
    text = _script(judged, machine, tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    if size > LIMIT:
        raise UsageError(
            f"the inputs of the wrong call take {filesize(size)}", context=str(folder),
            hint="run a smaller model, or smaller inputs with --input",
        )  # fmt: skip
    beside = folder.with_name(f".{folder.name}.tmp")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        torch.save(tensors, beside / INPUTS)
        (beside / SCRIPT).write_text(text, encoding="utf-8")
        if (folder / SCRIPT).is_file():  # one of ours: the last run's
            shutil.rmtree(folder)
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise UsageError(
            f"cannot write the reproducer: {error.strerror}",
            context=str(folder),
            hint="name a folder that does not exist yet: --repro DIR",
        ) from error


def _script(judged: Judged, machine: Machine, tensors: dict[str, torch.Tensor]) -> str:
    dtype = dtype_name(judged.dtype) if judged.dtype is not None else ""
    relative, targets_of = TOLERANCES.get(dtype, (0.0, 0.0))
    # As it was judged: beyond what the CPU loses in the same dtype, or on the CPU itself so many tolerances.
    allowed = TIMES if machine.device == "cpu" else max(BEYOND, TIMES * (judged.cpu or 0.0))
    func, args, kwargs = judged.call
    arguments = f"{_text(list(args), tensors)}, {_text(kwargs, tensors)}"
    return _TEMPLATE.format(
        op=judged.op,
        call=f"{func.namespace}.{dispatch.packet_name_of(func)}.{dispatch.overload_name_of(func)}",
        written=", ".join(_written(judged)),
        reference=_reference(judged, tensors),
        device=machine.device,
        device_name=machine.device_name,
        os=machine.os,
        os_version=machine.os_version,
        arch=machine.arch,
        torch=machine.torch,
        commit=machine.commit[:12],
        relative=relative,
        targets_of=targets_of,
        times=allowed if math.isfinite(allowed) else 1.0,
        output=judged.output,
        wide="{" + ", ".join(f"{dtype}: {wide}" for dtype, wide in WIDE.items()) + "}",
        arguments=arguments,
    )


def _text(value: Any, tensors: dict[str, torch.Tensor]) -> str:
    """Return a value as the Python that makes it."""
    if isinstance(value, KeptTensor):
        name = f"input{len(tensors)}"
        tensors[name] = value.memory
        bits = "".join(f", {bit}=True" for bit in ("conj", "neg") if getattr(value, bit))
        return f"t({name!r}, {value.size}, {value.stride}, {value.offset}{bits})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_text(v, tensors)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item, tensors) for item in value) + "]"
    if isinstance(value, torch.dtype):
        return f"d({value})"
    if isinstance(value, torch.device):
        return "torch.device(device)"
    if isinstance(value, (torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


def _written(judged: Judged) -> Iterator[str]:
    """Yield the arguments that the operator writes to, as the script names them."""
    func, args, kwargs = judged.call
    for position, argument in enumerate(dispatch.schema_of(func).arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if position < len(args) and not argument.kwarg_only:
            yield f"args[{position}]"
        elif argument.name in kwargs:
            yield f"kwargs[{argument.name!r}]"


def _reference(judged: Judged, tensors: dict[str, torch.Tensor]) -> str:
    """Return the script's reference: the operator on the CPU, or the formula's values where the CPU has no kernel."""
    if judged.op not in FORMULAS:
        return 'run("cpu", True)'
    tensors["exact"] = in_float64(judged.call)[judged.output]
    return 'INPUTS["exact"]'
