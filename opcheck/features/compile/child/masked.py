"""Follows masked blocks while Inductor writes them: a kernel's text does not show the meaning of its names.

``MetalOverrides.masked`` (torch/_inductor/codegen/mps.py) writes the body of a mask into a block of its own from 2.11
on.  Two mistakes of released versions come from how it names things:

- Up to 2.14 the key of a block leaves out the result, so that two bodies of the same text (none,
  where both values are loaded before) share one variable.
- In 2.11 a block inside a block takes the same names again, which hide the outer ones.

Up to 2.10 the body is computed for every thread, and so is the check of an index inside of it: where one side of the
range is checked, a thread whose index lies outside ends and writes nothing (``MetalKernel.check_bounds``; a check of
both sides is never true, because it joins them with ``&&``).

``MetalOverrides.where`` casts its third argument to the type of its second from 2.11 to 2.14.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from opcheck.tracing.torch_private import compilation

#: What the names of an inner block have in them while the kernel is written, so that no two levels share a name.
_LEVEL = re.compile(r"_level\d+_")
_NAME = re.compile(r"(?<![\w.])tmp\w*")
_DECLARED = re.compile(r"^\s*(?:[\w:]+\s+)+(?P<name>tmp\w*)\s*(?P<end>[=;\[])")


class _Block(NamedTuple):
    """The variable of a masked block, and the result of the body that it was written for."""

    variable: Any
    result: str


class MaskedBlocks:
    """What the masked blocks of each kernel compute."""

    def __init__(self) -> None:
        #: kernel -> id of a variable -> its block, which keeps the variable alive
        self._blocks: WeakKeyDictionary[Any, dict[int, _Block]] = WeakKeyDictionary()
        self._notes: WeakKeyDictionary[Any, dict[str, None]] = WeakKeyDictionary()
        #: the prefixes of names that the backend gave the blocks around this point
        self._prefixes: list[str] = []

    def following(self, masked: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``MetalOverrides.masked`` so that the result of each body that it writes is kept."""

        def follow(mask: Any, body: Callable[[], Any], other: Any) -> Any:
            results: list[str] = []

            def follow_body() -> Any:
                names = compilation.kernel_names()
                prefix = names.name_prefix
                if prefix in self._prefixes:
                    names.name_prefix = f"{prefix}_level{len(self._prefixes)}_"
                self._prefixes.append(prefix)
                try:
                    result = body()
                finally:
                    self._prefixes.pop()
                results.append(str(result))
                return result

            variable = masked(mask, follow_body, other)
            for result in results:
                self._keep(variable, result)
            return variable

        return follow

    def checking(self, check_bounds: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``MetalKernel.check_bounds`` so that an index that ends threads outside of its mask is noted."""

        def check(kernel: Any, expr: Any, size: Any, lower: Any, upper: Any) -> Any:
            if self._prefixes and bool(lower) != bool(upper):
                end = _ends_a_thread(kernel, expr, size)
                certainty = "leaves" if end else "may leave"
                note = f"a masked index {certainty} its {size} elements outside of the mask: {end or expr}"
                self._notes.setdefault(kernel, {})[plain(note)] = None
            return check_bounds(kernel, expr, size, lower, upper)

        return check

    def choosing(self, where: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``MetalOverrides.where`` so that a value is noted that the type of the other cannot represent."""

        def choose(condition: Any, first: Any, second: Any) -> Any:
            if _kind(first) < _kind(second) and not _is_whole(second):
                note = f"a choice casts {second} to the type of {first}, which cannot represent it"
                self._notes.setdefault(compilation.current_kernel(), {})[plain(note)] = None
            return where(condition, first, second)

        return choose

    def _keep(self, variable: Any, result: str) -> None:
        kernel = compilation.current_kernel()
        first = self._blocks.setdefault(kernel, {}).setdefault(
            id(variable), _Block(variable, result)
        )
        if first.result != result:
            note = f"{variable} is {first.result} in one masked block, and stands for {result} of another"
            self._notes.setdefault(kernel, {})[plain(note)] = None

    def notes(self, kernel: Any, source: str) -> tuple[str, ...]:
        """Return what went wrong with the names of a kernel's blocks.

        Args:
            kernel: the kernel of Inductor's.
            source: its text, as it was written while it was followed.
        """
        hidden = (
            f"{plain(name)} of an outer masked block is hidden by one of an inner block"
            for name in _hidden_names(source)
        )
        return (*self._notes.get(kernel, {}), *dict.fromkeys(hidden))


def _kind(value: Any) -> int:
    """Return 0 for a truth value of a kernel, 1 for an integer, 2 for any other number."""
    dtype = value.dtype if hasattr(value, "dtype") else torch.tensor(value).dtype
    return 2 if dtype is None or dtype.is_floating_point else int(dtype != torch.bool)


def _is_whole(value: Any) -> bool:
    """Return whether a value of a kernel is a constant without a fraction."""
    bounds = getattr(value, "bounds", None)
    lower, upper = (value, value) if bounds is None else (bounds.lower, bounds.upper)
    return bool(lower == upper and lower == math.floor(lower))


def _ends_a_thread(kernel: Any, expr: Any, size: Any) -> str:
    """Return a corner of the kernel's loops with an index that is checked and lies outside, or empty.

    An index that depends on a tensor's values, or on symbolic sizes cannot be computed.
    """
    ranges = compilation.loop_ranges(kernel)
    symbols = sorted(expr.free_symbols, key=str)
    if not ranges.keys() >= set(symbols):
        return ""
    for corner in itertools.product(*((0, ranges[symbol] - 1) for symbol in symbols)):
        value = expr.subs(zip(symbols, corner, strict=True)).expand(identity=True)
        if (value < 0) == True or (value > size) == True:  # noqa: E712 - a relation of sympy's may stay open
            return f"{expr} is {value}"
    return ""


def plain(source: str) -> str:
    """Return a text with the names that the backend gives."""
    return _LEVEL.sub("", source)


def _hidden_names(source: str) -> Iterator[str]:
    """Yield the names that mean another variable once they are plain, by the scopes of C++."""
    if not _LEVEL.search(source):
        return
    scopes: list[dict[str, str]] = [{}]
    for line in source.splitlines():
        declared = _DECLARED.search(line)
        if declared:
            # In its own initializer a variable is declared already.
            scopes[-1][plain(declared["name"])] = declared["name"]
        yield from (name for name in _NAME.findall(line) if _resolve(name, scopes) != name)
        for brace in re.findall(r"[{}]", line):
            if brace == "{":
                scopes.append({})
            elif len(scopes) > 1:
                scopes.pop()


def _resolve(name: str, scopes: Sequence[Mapping[str, str]]) -> str:
    """Return the variable that a plain name means at this point; the name itself where none is declared."""
    inner = (scope[plain(name)] for scope in reversed(scopes) if plain(name) in scope)
    return next(inner, name)
