"""The texts that a Mac prints when it has no kernel, by torch release.

Read out of ``aten/src/ATen/mps/MPSFallback.mm`` and
``aten/src/ATen/core/dispatch/OperatorEntry.cpp``, and checked against the strings in the released
macOS wheels.
"""

import functools
import math
import re
from collections.abc import Collection
from typing import Any

from opcheck.common.names import cpp_name
from opcheck.common.versions import Span, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.model.records import OpCall


def not_implemented(op: str, torch: Version, commit: str) -> str:
    """Return the NotImplementedError of an operator without a kernel while the fallback variable is unset.

    Args:
        op: the overload that the Mac names.
        torch: the release line.
        commit: the commit that the release was built from, as its text quotes it.
    """
    namespace = op.partition("::")[0]
    rows = _table()["not_implemented"]
    row = next(row for row in rows if torch in _span(row) and row.get("namespace", namespace) == namespace)
    return str(row["text"]).format(op=op, commit=commit)


def _span(row: dict[str, str]) -> Span:
    return Span(**{end: Version.parse(row[end]) for end in ("since", "until") if end in row})


def fallback_warning(op: str) -> str:
    """Return the UserWarning of a fallback, which has the same wording in every release.

    A process prints it for its first fallback only, unless ``torch.set_warn_always(True)``.
    Python adds the place in MPSFallback.mm, which moves from release to release.
    """
    return _text("fallback").format(op=op)


def no_kernel_for(op: str, backend: str) -> str:
    """Return the first sentence of the dispatcher's error for a backend without a kernel or fallback."""
    return _text("no_kernel").format(op=op, backend=backend)


#: MPSAllocator.mm, ``format_size``: its own up to 2.7, c10's since (the strings of the wheels of 2.0 to 2.8).
_C10_UNITS = Version(2, 8)
#: MPSAllocator.mm, ``init_buffer_pools``: without private pools from 2.12 on (the wheels of 2.11.0 and 2.12.1).
_SHARED_POOLS = Version(2, 12)


def out_of_memory(torch: Version, *, allocated: int, other: int, allowed: int, tried: int) -> str:
    """Return the RuntimeError of an allocation above the high watermark.

    Args:
        torch: the release line.
        allocated: bytes of the allocator's heaps.
        other: bytes that the process has allocated beside them.
        allowed: bytes that may be allocated in all.
        tried: bytes of the allocation that fails.
    """
    sizes = {"allocated": allocated, "other": other, "allowed": allowed, "tried": tried}
    texts = {name: _size(size, torch) for name, size in sizes.items()}
    return _text("out_of_memory").format(pool="shared" if torch >= _SHARED_POOLS else "private", **texts)


def invalid_buffer_size(size: int, torch: Version) -> str:
    """Return the RuntimeError of a tensor that is larger than Metal's largest buffer."""
    return f"Invalid buffer size: {_size(size, torch)}"


def _size(number: int, torch: Version) -> str:
    power = min(max(number.bit_length() - 1, 0) // 10, 3)
    if not power:
        return f"{number} bytes"
    return f"{number / 1024**power:.2f} {' KMG'[power]}{'iB' if torch >= _C10_UNITS else 'B'}"


#: A field of a statement's text, for a value that PyTorch inserts.
FIELD = re.compile(r"\{(\w+|\.\.\.)\}")
#: The fields that a call fills; another field prints as ``...``, since the kernel alone knows its value.
OF_CALLS = frozenset({"op", "operation", "dtype", "attribute", "rank", "count", "numel"})


def fill_text(text: str, call: OpCall | None = None, dtypes: Collection[str] = ()) -> str:
    """Return a statement's text as a Mac prints it; ``...`` replaces what is not known.

    Args:
        text: the text of the statement.
        call: the call that it is printed for; None: no particular one.
        dtypes: those that the statement refuses; empty: any.
    """
    values: dict[str, str] = {}
    if call is not None:
        short = call.op.partition("::")[2].partition(".")[0]
        # UnaryOps.mm passes "cumsum_out_mps" and the like as the name of the operation; the wheels of 2.1, 2.6 and 2.11
        # have these names.
        values = {"op": short, "operation": f"{short.removesuffix('_')}_out_mps"}
        specs = [spec for spec in (*call.inputs, *call.outputs) if spec.device == "mps"]
        if specs:
            refused = next((spec for spec in specs if spec.dtype in dtypes), specs[0])
            elements = str(max(math.prod(spec.shape) for spec in specs))
            rank = str(max(len(spec.shape) for spec in specs))
            values |= {"dtype": cpp_name(refused.dtype), "attribute": refused.dtype}
            values |= {"rank": rank, "count": elements, "numel": elements}
    return FIELD.sub(lambda match: values.get(match[1], "..."), text)


def is_form_of(text: str, printed: str) -> bool:
    """Return whether a printed text is a statement's text with its fields filled."""
    pieces = map(re.escape, FIELD.split(text)[::2])
    return re.fullmatch("(.*)".join(pieces), printed, re.DOTALL) is not None


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = load_shipped(__file__, "messages.yaml")
    return table


def _text(name: str) -> str:
    return str(_table()["texts"][name])


def remedy_for(kind: str, text: str) -> str:
    """Return what to do about the text of an error; empty for an error of another kind.

    Args:
        kind: ``without_cuda``: a torch without CUDA raises it; ``refused_on_mps``: it concerns the device and names no
            operator; ``not_spawned``: the start of a process by spawn raises it; ``lacks_global``: a started one does.
        text: the text.
    """
    return next((row["hint"] for row in _table()[kind] if re.search(row["pattern"], text)), "")
