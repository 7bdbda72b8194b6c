"""Writes the first wrong call as a program of its own: its inputs and a script that needs torch alone."""

import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.text import filesize
from opcheck.data.device_evidence import Machine
from opcheck.numerics.child.closeness import dtype_name
from opcheck.numerics.child.float64 import WIDE
from opcheck.numerics.child.kept_tensors import KeptTensor
from opcheck.numerics.compare.child.compare_mode import ComparedCall
from opcheck.numerics.compare.child.cpu_reference import FORMULAS, in_float64
from opcheck.numerics.compare.comparison_records import BEYOND, TIMES, TOLERANCES
from opcheck.tracing.torch_private import dispatch

SCRIPT, INPUTS = "repro.py", "inputs.pt"
#: bytes of inputs that are written
LIMIT = 1 << 30

#: Of the script, for ``str.format``.
_TEMPLATE = documents.read_text(Path(__file__).with_name("reproducer.template"))


def write(judged: ComparedCall, machine: Machine, folder: Path) -> None:
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
    hint = "name a folder that does not exist yet: --repro DIR"
    with explain_errors(OSError, "cannot write the reproducer", context=folder, hint=hint):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".opcheck-", dir=folder.parent) as scratch:
            beside = Path(scratch, "new")
            beside.mkdir()
            torch.save(tensors, beside / INPUTS)
            (beside / SCRIPT).write_text(text, encoding="utf-8")
            if folder.exists() and {path.name for path in folder.iterdir()} == {SCRIPT, INPUTS}:
                shutil.rmtree(folder)  # the last run's; a link raises
            beside.rename(folder)


def _script(judged: ComparedCall, machine: Machine, tensors: dict[str, torch.Tensor]) -> str:
    dtype = dtype_name(judged.dtype) if judged.dtype is not None else ""
    relative, targets_of = TOLERANCES.get(dtype, (0.0, 0.0))
    # As it was judged: beyond what the CPU loses in the same dtype, or on the CPU itself so many tolerances.
    allowed = TIMES if machine.device == "cpu" else max(BEYOND, TIMES * (judged.cpu or 0.0))
    func, args, kwargs = judged.call
    arguments = f"{_text(list(args), tensors)}, {_text(kwargs, tensors)}"
    return _TEMPLATE.format(
        op=judged.op,
        call=f"{func.namespace}.{dispatch.packet_name_of(func)}.{dispatch.overload_name_of(func)}",
        written=", ".join(_written_arguments(judged)),
        reference=_reference(judged, tensors),
        **msgspec.structs.asdict(msgspec.structs.replace(machine, commit=machine.commit[:12])),
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


def _written_arguments(judged: ComparedCall) -> Iterator[str]:
    """Yield the arguments that the operator writes to, as the script names them."""
    func, args, kwargs = judged.call
    for position, argument in enumerate(dispatch.schema_of(func).arguments):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and position < len(args) and not argument.kwarg_only:
            yield f"args[{position}]"
        elif is_written and argument.name in kwargs:
            yield f"kwargs[{argument.name!r}]"


def _reference(judged: ComparedCall, tensors: dict[str, torch.Tensor]) -> str:
    """Return the script's reference: the operator on the CPU, or the formula's values where the CPU has no kernel."""
    if judged.op not in FORMULAS:
        return 'run("cpu", True)'
    tensors["exact"] = in_float64(judged.call)[judged.output]
    return 'INPUTS["exact"]'
