"""Resolve what a user writes into operator overloads.

A user writes the dispatcher's name, FX's, the name of a Python function, method or module class, or
a usual word.  A name whose calls were recorded (``data/composites.py``) is its own answer, as an
operator that calls others.  A function is looked up in the stored table of what the operator
database calls; where that has no row, in the naming rules of
``aten/src/ATen/native/native_functions.yaml``: a function of a Python module is the operator of
that module's prefix (``torch.fft.rfft`` is ``aten::fft_rfft``).  What is still not found is
compared with all names without regard to case, spaces, hyphens and underscores.
"""

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from opcheck.common.errors import UsageError
from opcheck.common.names import DTYPE_ALIASES
from opcheck.data import composites
from opcheck.data.extensions import LIBRARIES
from opcheck.data.registrations import OpLists
from opcheck.lookup import answer_words as words
from opcheck.lookup.operator_facts import api_overloads

_NAMESPACED = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_PYTHON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

#: A name of an extension library's Python: torchvision.ops.boxes.nms, torchaudio.functional.lfilter.
_OF_LIBRARY = re.compile(rf"(?P<library>{'|'.join(LIBRARIES)})\.(?:\w+\.)*(?P<function>\w+)")

#: What an overload without a name of its own is called, most usual first: the choice of the one
#: overload that answers for all where a base name is asked.
_USUAL = ("", "Tensor", "Tensor_Tensor", "self", "input", "int", "Scalar", "dim")
#: The same of operators over lists of tensors, which optimizers call with a list or a number.
_USUAL_OF_LISTS = ("", "List", "Scalar", "ScalarList")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wrote, and the overloads that it means."""

    asked: str
    #: ``overload``, ``operator``, ``python`` or ``extension``.
    kind: str
    #: the overload that answers for the query if it means several.
    main: str
    overloads: tuple[str, ...]
    #: the dtype that the name itself fixes, as ``double`` does.
    dtype: str = ""


def resolve(text: str, lists: OpLists) -> Query:
    """Return the overloads that a user means.

    Raises:
        UsageError: nothing of that name is in any release, with near names; or the name calls no operator.
    """
    asked = _CALL.sub("", text.strip())
    bases = _bases(lists)
    name = asked
    for pattern, instead in words.SPELLINGS:
        name = re.sub(rf"\A(?:{pattern})", instead, name)
    owner, _, method = name.rpartition(".")
    if (library := words.FOREIGN.get(name.partition(".")[0])) and owner:
        raise _foreign_error(asked, name, library, lists)
    is_method = owner.isidentifier() and owner not in _owners()
    for called in (name, f"Tensor.{method}") if is_method else (name,):
        if called in words.WITHOUT_OPERATORS:
            why, next_step = words.WITHOUT_OPERATORS[called]
            raise _error(asked, f"{asked}: {why}", next_step)
    if replacement := words.REMOVED_FUNCTIONS.get(asked):
        message = f"{asked}: torch has removed it; the call raises on every device"
        raise _error(asked, message, f"write {replacement}; opcheck op {replacement}")
    if match := _OF_LIBRARY.fullmatch(name):
        name = _library_operator(asked, match["library"], match["function"], lists)
    query = _exact(name, bases)
    if query is None:
        _refuse_other_things(asked, name)
        query = _by_word(name, lists, bases) or _by_mode(asked, name, lists, bases)
    if query is None:
        near = ", ".join(_find_similar(name, lists))
        hint = f"did you mean {near}?" if near else "opcheck matrix -f csv lists all of them"
        raise _error(asked, f"no release in the lists has an operator {asked!r}", hint)
    if mode := _MODE.search(text):
        of_mode = _by_mode(asked, f"{name} {mode[1]}", lists, bases)
        query, asked = (of_mode, f"{asked} {mode[1]}") if of_mode else (query, asked)
    fixed = words.FIXED_DTYPES.get(method, "") if is_method or owner in {"", "Tensor"} else ""
    return replace(query, asked=asked, dtype=fixed)


def _error(asked: str, message: str, hint: str) -> UsageError:
    return UsageError(message, context=f"operator {asked}", hint=hint)


#: The arguments of a call that a user copied along with the name, and the mode among them.
_CALL = re.compile(r"\(.*\)?$", re.DOTALL)
_MODE = re.compile(r"\(.*\bmode\s*=\s*['\"]([\w-]+)['\"]", re.DOTALL)


@functools.cache
def _owners() -> frozenset[str]:
    """Return what may precede the dot of a name that is not a method of a variable."""
    names = (*composites.SAMPLED.load().apis, *composites.python_callers(), *words.MODULES)
    return frozenset({*LIBRARIES, *(name.partition(".")[0] for name in names)})


def _foreign_error(asked: str, name: str, library: str, lists: OpLists) -> UsageError:
    """Return the error for a function of another library, with the function of torch of the same name."""
    same = f"torch.{name.partition('.')[2]}"
    try:
        resolve(same, lists)
    except UsageError:
        same = ""
    hint = f"opcheck op {same}" if same else "opcheck run FILE.py runs a program that calls it"
    return _error(asked, f"{asked} is a function of {library}, not an operator of torch", hint)


def modes_of(function: str, lists: OpLists) -> dict[str, tuple[str, ...]]:
    """Return the modes of a function, each with the usual overloads of its operators; empty: it has none."""
    forward = [each for each in _bases(lists).items() if "backward" not in each[0]]
    starts = {mode: f"aten::{start}" for mode, start in words.MODES.get(function, {}).items()}
    return {
        mode: tuple(usual(ops) for base, ops in forward if base.startswith(start)) for mode, start in starts.items()
    }


def _by_mode(asked: str, name: str, lists: OpLists, bases: Mapping[str, tuple[str, ...]]) -> Query | None:
    """Return what ``F.interpolate bicubic`` means: the operators of one mode of a function.

    Raises:
        UsageError: the function has no such mode.
    """
    head, _, mode = name.rpartition(" ")
    function = _exact(head, bases) or _by_word(head, lists, bases) if head else None
    modes = modes_of(function.main, lists) if function else {}
    if not modes:
        return None
    if mode not in modes:
        raise _error(asked, f"{head} has no mode {mode!r}", f"its modes: {', '.join(modes)}")
    main = next((op for op in modes[mode] if "2d" in op), modes[mode][0])
    return Query(asked=name, kind="python", main=main, overloads=modes[mode])


def _library_operator(asked: str, library: str, function: str, lists: OpLists) -> str:
    """Return the operator of an extension library that decides for a name of its Python.

    Raises:
        UsageError: no operator of the library has that name; which ones its Python code calls is not recorded.
    """
    spelled = words.key(function)
    known = words.LIBRARY_CALLS.get(f"{library}.{spelled}")
    operators = [name for name in _extension_operators(lists) if name.startswith(f"{library}::")]
    matching = (name for name in operators if words.key(name.partition("::")[2]) == spelled)
    meant = known or next(matching, "")
    if not meant:
        message = f"{asked}: {library} has no operator of that name; what its Python code calls is not recorded"
        hint = f"opcheck run FILE.py judges a program that calls it; operators: {', '.join(operators)}"
        raise _error(asked, message, hint)
    return meant


def _exact(name: str, bases: Mapping[str, tuple[str, ...]]) -> Query | None:
    """Return what a name in its usual spelling means; None if nothing has it.

    Raises:
        UsageError: the operator has no such overload, or aten has no such operator.
    """
    if _NAMESPACED.fullmatch(name):
        return _find_namespaced(name, bases)
    if not _PYTHON.fullmatch(name):
        return None
    if name.startswith("aten."):
        # FX's aten.mm.default is aten::mm to the dispatcher.
        overload = name.partition(".")[2].removesuffix(".default")
        return _find_namespaced(f"aten::{overload}", bases)
    if f"aten::{name}" in bases.get(f"aten::{name.partition('.')[0]}", ()):
        # add.out, max.dim: an overload without its namespace.
        return _find_namespaced(f"aten::{name}", bases)
    for recorded in _recorded_names(name, bases):
        if recorded in composites.python_callers():
            return Query(asked=name, kind="python", main=recorded, overloads=(recorded,))
    return _python(name, bases)


def _recorded_names(name: str, bases: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the full names that a name may mean: itself, a class, and a function that is no operator."""
    yield name
    if name[:1].isupper():
        yield from (f"nn.{name}", f"optim.{name}")
    elif "." not in name and f"aten::{name}" not in bases:
        yield from (f"nn.functional.{name}", f"Tensor.{name}")


def _find_namespaced(asked: str, bases: Mapping[str, tuple[str, ...]]) -> Query | None:
    base, _, overload = asked.partition(".")
    if not base.startswith("aten::"):
        return Query(asked=asked, kind="extension", main=asked, overloads=(asked,))
    members = bases.get(base)
    if members is None:
        return None
    if overload and asked not in members:
        known = ", ".join(op.partition(".")[2] or "(none)" for op in members)
        message = f"{base} has no overload {overload!r} in any release of the lists"
        raise _error(asked, message, f"its overloads: {known}")
    if overload:
        return Query(asked=asked, kind="overload", main=asked, overloads=(asked,))
    return Query(asked=asked, kind="operator", main=usual(members), overloads=members)


def _python(name: str, bases: Mapping[str, tuple[str, ...]]) -> Query | None:
    module, _, function = name.rpartition(".")
    base = f"aten::{words.MODULES[module]}{function}" if module in words.MODULES else ""
    called = api_overloads(name)
    members = bases.get(words.RENAMED.get(name, base), ())
    # A bare name means the operator first, because the dispatcher uses that name.
    is_operator = bool(members) and not module
    overloads = members if is_operator else called or members
    if not overloads:
        return None
    main = usual([op for op in overloads if op in members] or overloads)
    kind = "operator" if is_operator else "python"
    return Query(asked=name, kind=kind, main=main, overloads=overloads)


def _by_word(name: str, lists: OpLists, bases: Mapping[str, tuple[str, ...]]) -> Query | None:
    """Return what a usual word or another spelling of a name means; None if there is nothing."""
    meant = _other_spelling(name, lists)
    return _exact(meant, bases) if meant else None


def _other_spelling(name: str, lists: OpLists) -> str:
    module, _, last = name.rpartition(".")
    word = words.key(name if " " in name else last)
    for usual_word, meant in words.WORDS.items():
        if words.key(usual_word) == word:
            return meant
    spellings = _spellings(lists)
    for place in (f"{module}.", "", *_PLACES) if module in {*words.MODULES, "nn"} else ("",):
        if place + word in spellings:
            return spellings[place + word]
    return ""


#: Where a word is looked for that names no place.
_PLACES = ("nn.functional.", "nn.", "Tensor.")


def _spellings(lists: OpLists) -> Mapping[str, str]:
    """Return names by their spelling without case and underscores, with and without their module.

    Of several names with one spelling the operator comes first, then modules and functions, then the operators of
    extension libraries, then private operators.
    """
    names = [base for base in _bases(lists) if not base.startswith("aten::_")]
    names += sorted(composites.python_callers(), key=lambda name: (name[:1] != "n", name))
    names += sorted(composites.SAMPLED.load().apis)
    names += _extension_operators(lists)
    names += [base for base in _bases(lists) if base.startswith("aten::_")]
    spellings: dict[str, str] = {}
    for name in names:
        module, _, last = name.rpartition("::" if "::" in name else ".")
        spellings.setdefault(words.key(last), name)
        if "::" not in name and module:
            spellings.setdefault(f"{module}.{words.key(last)}", name)
    return spellings


def _extension_operators(lists: OpLists) -> list[str]:
    """Return the operators of the newest releases of the extension libraries, without overloads."""
    newest = lists.releases[-1].line
    names: dict[str, None] = {}
    for library in LIBRARIES:
        known = lists.extension(library, newest)
        names |= dict.fromkeys(op.partition(".")[0] for op in (known[1] if known else ()))
    return [name for name in names if "::_" not in name]


def usual(overloads: Iterable[str]) -> str:
    """Return the overload that a plain call from Python reaches: the one without a name, else Tensor's."""

    def rank(op: str) -> tuple[bool, bool, int, str]:
        base, _, overload = op.partition(".")
        order = _USUAL_OF_LISTS if base.startswith("aten::_foreach_") else _USUAL
        place = order.index(overload) if overload in order else len(order)
        # torchgen's names of overloads show those with out= and those that take names.
        is_other = overload.endswith("out") or "names" in overload or "imname" in overload
        return words.USUAL_OVERLOADS.get(base) != overload, is_other, place, op

    return min(overloads, key=rank)


@functools.lru_cache(8)
def _bases(lists: OpLists) -> Mapping[str, tuple[str, ...]]:
    """Return every operator that some release has, with its overloads over all releases."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for op in lists.names():
        members[op.partition(".")[0]].append(op)
    return {base: tuple(sorted(ops)) for base, ops in members.items()}


def _refuse_other_things(asked: str, name: str) -> None:
    """Refuse what is often written for an operator: a dtype, a version, a part of torch that calls none.

    Raises:
        UsageError: the name is such a thing.
    """
    dtype = DTYPE_ALIASES.get(name, name)
    for pattern, message, hint in words.OTHER_THINGS:
        if pattern.fullmatch(name):
            raise _error(asked, message.format(asked, name=dtype), hint.format(asked, name=dtype))


def _find_similar(name: str, lists: OpLists) -> list[str]:
    """Return the names most like the text."""
    word = words.key(name.rpartition("::")[2].rpartition(".")[2] or name)
    spellings = {text: known for text, known in _spellings(lists).items() if "." not in text}
    texts = difflib.get_close_matches(word, spellings, n=5, cutoff=0.6)
    inside = [text for text in spellings if len(word) > 3 and word in text]
    texts += sorted(inside, key=lambda text: (len(text), text))
    return list(dict.fromkeys(spellings[text] for text in texts))[:5]
