"""Resolve what a user writes into operator overloads.

A user writes the dispatcher's name, FX's, or the name of the Python function.  The last is looked
up in the stored table of what each function calls; where that has no row, in the naming rules of
``aten/src/ATen/native/native_functions.yaml``: a function of a Python module is the operator of
that module's prefix (``torch.fft.rfft`` is ``aten::fft_rfft``).
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

import msgspec

from opcheck.common.errors import UsageError
from opcheck.lookup.operator_facts import api_overloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opcheck.data.registrations import OpLists

_NAMESPACED = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_PYTHON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

#: Where a Python function lives, and the prefix that its operator's name has then.
#: (aten/src/ATen/native/native_functions.yaml, python_module, torch 1.13 to 2.15)
_MODULES = {
    "": "",
    "Tensor": "",
    "nn.functional": "",
    "functional": "",
    "fft": "fft_",
    "linalg": "linalg_",
    "special": "special_",
}
#: Functions whose operator has another name (torch/nn/functional.py, torch 1.13 to 2.15).
_RENAMED = {
    "nn.functional.affine_grid": "aten::affine_grid_generator",
    "nn.functional.fold": "aten::col2im",
    "nn.functional.grid_sample": "aten::grid_sampler",
    "nn.functional.unfold": "aten::im2col",
}
#: Other spellings of the same places.
_SPELLINGS = (
    ("torch.ops.aten.", "aten."),
    ("torch.", ""),
    ("F.", "nn.functional."),
    ("functional.", "nn.functional."),
    ("tensor.", "Tensor."),
)

#: What an overload without a name of its own is called, most usual first: the choice of the one
#: overload that answers for all where a base name is asked.
_USUAL = ("", "Tensor", "Tensor_Tensor", "self", "input", "int", "Scalar", "dim")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wrote, and the overloads that it means."""

    asked: str
    #: ``overload``, ``operator``, ``python`` or ``extension``.
    kind: str
    #: the overload that answers for the query if it means several.
    main: str
    overloads: tuple[str, ...]


def resolve(text: str, lists: OpLists) -> Query:
    """Return the overloads that a user means.

    Raises:
        UsageError: nothing of that name is in any release; near names are offered.
    """
    asked = text.strip().removesuffix("()")
    bases = _bases(lists)
    if _NAMESPACED.fullmatch(asked):
        return _namespaced(asked, bases)
    if not _PYTHON.fullmatch(asked):
        raise UsageError(
            f"not the name of an operator: {text!r}",
            context="opcheck op",
            hint="write it as aten::add.Tensor, aten::nonzero, torch.fft.rfft or isin",
        )
    name = asked
    for written, meant in _SPELLINGS:
        if name.startswith(written):
            name = meant + name.removeprefix(written)
    if name.startswith("aten."):
        return msgspec.structs.replace(_namespaced(_from_fx(name), bases), asked=asked)
    return _python(asked, name, bases)


def _namespaced(asked: str, bases: Mapping[str, tuple[str, ...]]) -> Query:
    base, _, overload = asked.partition(".")
    if not base.startswith("aten::"):
        return Query(asked=asked, kind="extension", main=asked, overloads=(asked,))
    members = bases.get(base)
    if members is None or (overload and asked not in members):
        raise _no_such(asked, bases)
    if overload:
        return Query(asked=asked, kind="overload", main=asked, overloads=(asked,))
    return Query(asked=asked, kind="operator", main=usual(members), overloads=members)


def _from_fx(name: str) -> str:
    """Return FX's ``aten.mm.default`` as the dispatcher writes it."""
    _, _, rest = name.partition(".")
    return "aten::" + rest.removesuffix(".default")


def _python(asked: str, name: str, bases: Mapping[str, tuple[str, ...]]) -> Query:
    module, _, function = name.rpartition(".")
    base = f"aten::{_MODULES[module]}{function}" if module in _MODULES else ""
    base = _RENAMED.get(name, base)
    called = api_overloads(name)
    members = tuple(bases.get(base, ()))
    if not module and members:
        # A bare name means the operator first, because the dispatcher uses that name.
        return Query(asked=asked, kind="operator", main=usual(members), overloads=members)
    if called:
        main = usual([op for op in called if op in members] or called)
        return Query(asked=asked, kind="python", main=main, overloads=called)
    if members:
        return Query(asked=asked, kind="python", main=usual(members), overloads=members)
    raise _no_such(asked, bases, base)


def usual(overloads: Iterable[str]) -> str:
    """Return the overload that a plain call from Python reaches: the one without a name, else Tensor's."""

    def rank(op: str) -> tuple[bool, int, str]:
        overload = op.partition(".")[2]
        place = _USUAL.index(overload) if overload in _USUAL else len(_USUAL)
        return writes_out(op), place, op

    return min(overloads, key=rank)


def writes_out(op: str) -> bool:
    """Return whether the overload is an ``out=`` variant or takes names; torchgen's names of overloads show it."""
    overload = op.partition(".")[2]
    return overload.endswith("out") or "names" in overload


def _bases(lists: OpLists) -> Mapping[str, tuple[str, ...]]:
    """Return every operator that some release has, with its overloads over all releases."""
    members: dict[str, list[str]] = {}
    for op in lists.names():
        members.setdefault(op.partition(".")[0], []).append(op)
    return {base: tuple(sorted(ops)) for base, ops in members.items()}


def _no_such(asked: str, bases: Mapping[str, tuple[str, ...]], guess: str = "") -> UsageError:
    base, _, overload = asked.partition(".")
    if base in bases:
        known = ", ".join(op.partition(".")[2] or "(none)" for op in bases[base])
        return UsageError(
            f"{base} has no overload {overload!r} in any release of the lists",
            context=f"opcheck op {asked}",
            hint=f"its overloads: {known}",
        )
    near = _near(guess or asked, bases)
    return UsageError(
        f"no release in the lists has an operator {asked!r}",
        context=f"opcheck op {asked}",
        hint=f"did you mean {', '.join(near)}?" if near else "opcheck matrix lists all of them",
    )


def _near(asked: str, bases: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the operators with names like the text."""
    word = asked.rpartition("::")[2].rpartition(".")[2] or asked
    shown: dict[str, str] = {}
    for base in bases:
        shown.setdefault(base.removeprefix("aten::"), base)
    texts = difflib.get_close_matches(word, shown, n=5, cutoff=0.6)
    inside = sorted((s for s in shown if len(word) > 3 and word in s), key=lambda s: (len(s), s))
    return [shown[name] for name in dict.fromkeys([*texts, *inside])][:5]
