"""The answer to ``opcheck kernels`` as text."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from opcheck.common.names import DTYPES
from opcheck.common.text import plural
from opcheck.kernels import kernel_names
from opcheck.kernels.air import KernelParameter
from opcheck.kernels.kernel_catalogue import CataloguedKernel, Changes
from opcheck.kernels.library import Library

_MOST = 40
_ORDER = {name: place for place, name in enumerate(DTYPES)}


def operations(library: Library, kernels: Sequence[str]) -> str:
    """Return the operations of the kernels with these names: their number and their dtypes."""
    counts: dict[str, int] = defaultdict(int)
    dtypes: dict[str, set[str]] = defaultdict(set)
    for name in kernels:
        named = kernel_names.parse(name)
        counts[named.operation] += 1
        dtypes[named.operation] |= {dtype for dtype in named.dtypes if dtype in _ORDER}
    width = max(map(len, counts))
    lines = [
        f"  {operation.ljust(width)}  {counts[operation]:>5}  "
        f"{' '.join(sorted(dtypes[operation], key=_ORDER.__getitem__))}".rstrip()
        for operation in sorted(counts)
    ]
    return "\n".join([_head(library, len(kernels)), "", *lines])


def list_kernels(library: Library, entries: Sequence[CataloguedKernel], *, in_full: bool) -> str:
    """Return each kernel: with its arguments, or with their names alone on its line."""
    lines = [_head(library, len(entries))]
    if not in_full:
        width = max(len(entry.name) for entry in entries)
        return "\n".join([*lines, "", *(_line(entry, width) for entry in entries)])
    for entry in entries:
        form = f", {entry.form}" if entry.form else ""
        lines += [
            "",
            entry.name,
            f"  {entry.operation}{form}: {', '.join(entry.dtypes) or 'no dtype in the name'}",
            *(f"    {_argument(argument)}" for argument in entry.arguments),
        ]
    return "\n".join(lines)


def _line(entry: CataloguedKernel, width: int) -> str:
    buffers = ", ".join(argument.name for argument in entry.arguments if argument.is_buffer)
    return f"  {entry.name.ljust(width)}  {' '.join(entry.dtypes)} ({buffers})"


def _head(library: Library, shown: int) -> str:
    every = len(library.functions)
    share = f"{shown:,} of " if shown != every else ""
    return f"torch {library.torch}, {library.section}: {share}{plural(every, 'kernel')}"


def _argument(argument: KernelParameter) -> str:
    kind = argument.kind.removeprefix("air.")
    if not argument.is_buffer:
        return f"{argument.name}: {kind}"
    size = f", {argument.size} bytes" if argument.size else ""
    access = "written" if argument.written else "read"
    fields = f" {{{', '.join(field.name for field in argument.fields)}}}" if argument.fields else ""
    return f"{argument.name}: {kind} {argument.location}, {access}, {argument.type}{size}{fields}"


def list_changes(old: Library, new: Library, changes: Changes) -> str:
    """Return what differs, by operation."""
    lines = [
        f"torch {old.torch} -> {new.torch}, {new.section}",
        f"{len(changes.new):,} new, {len(changes.gone):,} gone, {len(changes.changed):,} changed",
        f"{changes.same:,} of the same code",
    ]
    for title in ("new", "gone", "changed"):
        kernels: tuple[str, ...] = getattr(changes, title)
        counts = Counter(kernel_names.parse(name).operation for name in kernels)
        names = (f"{name}: {plural(count, 'kernel')}" for name, count in sorted(counts.items()))
        shown = kernels if len(kernels) <= _MOST else names
        lines += ["", title, *(f"  {text}" for text in shown)] if kernels else []
    return "\n".join(lines)
