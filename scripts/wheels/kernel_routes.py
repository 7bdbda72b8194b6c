"""The compiled Metal kernels that an operator's code can reach, where it computes by nothing else.

The reader follows the calls of each registered MPS kernel through the code of ``libtorch_cpu.dylib``, through the
DispatchStubs whose MPS pointer is set and into Objective-C blocks.  It collects the beginnings of kernels' names, and
notes whether the code can reach an MPSGraph or another operator.  It executes nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opcheck.data.wheels.image import Image
from opcheck.kernels.kernel_names import WORDS, Named, parse
from scripts.wheels.bodies import OPERATOR, native, walk
from scripts.wheels.routes import DTYPE, Code

#: Functions of ATen and of the standard library that pass a lambda on, blocks, and code that the compiler outlined.
_FOLLOWED = re.compile(r"_+ZZ?NK?R?2at|__ZNSt3__1|_?OUTLINED_FUNCTION|_+Z.*_block_invoke")
#: Their calls are the same for every operator.  TensorIterator casts inputs on the CPU only
#: (aten/src/ATen/TensorIterator.cpp, compute_types).
_LEFT = re.compile(r"TensorIterator|DispatchStub|2at3cpu|2at4meta|2at8internal|2at7Context|2at4impl|Functionalization")
_GRAPH = re.compile(r"unMPSGraph|executeMPSGraph|MPSCachedGraph")
#: Operators that make, resize or fill memory and compute nothing: the kernel still decides.
_MEMORY = re.compile(
    r"(?:empty|new_empty|resize|contiguous|expand|view|squeeze|unsqueeze|as_strided|fill_|zero_|set_|copy_|is_same_size|"
    r"result_type|item)\w*"
)
#: TensorIterator gives this function its operands; it casts numbers of float64 alone
#: (aten/src/ATen/native/mps/OperationUtils.mm, exec_binary_kernel).
_BINARY = "MetalShaderLibrary18exec_binary_kernel"
_INDICES = frozenset({"int32", "int64"})
_DEPTH = 9


class Route(NamedTuple):
    """The beginnings of the names of the kernels that an operator can reach, and the checks' texts beside them."""

    kernels: tuple[str, ...]
    texts: tuple[str, ...]
    #: it passes two tensors to the function that casts where their dtypes differ
    is_binary: bool


def bases(names: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of kernels up to the layout or the first dtype, with the dtypes of the kernels that begin so.

    The host code of unary and binary kernels passes the part alone, and a function for all of them adds the layout.
    """
    dtypes: dict[str, set[str]] = defaultdict(set)
    formed: dict[str, list[tuple[str, Named]]] = defaultdict(list)
    for name in names:
        if match := DTYPE.search(name):
            kernel, base = parse(name), name[: match.start()]
            if kernel.form:
                formed[kernel.operation].append((base, kernel))
            else:
                dtypes[base] |= {WORDS[word] for word in DTYPE.findall(name)}
    for operation, kernels in formed.items():
        seconds = {kernel.dtypes[1] for _, kernel in kernels if len(kernel.dtypes) > 1}
        for base, kernel in kernels:
            # The output is named first, except where it is cast, or where the second is the dtype of an index.
            is_first = len(kernel.dtypes) == 1 or "castout" in kernel.form or seconds <= _INDICES
            is_reduction = kernel.form.startswith("inner")
            at = slice(None) if is_reduction else slice(1) if is_first else slice(1, 2)
            for key in (operation, base):
                dtypes[key] |= {*kernel.dtypes[at]} & {*WORDS.values()}
    return dict(dtypes)


def built(route: Route, dtypes: Mapping[str, set[str]]) -> set[str]:
    """Return the dtypes of all kernels that begin like one of the route's, whatever layout follows in their names."""
    reached: set[str] = set()
    for base, of_base in dtypes.items():
        if any(base == name or base.startswith(f"{name}_") for name in route.kernels):
            reached |= of_base
    return reached


def routes(image: Image, names: Iterable[str]) -> dict[str, Route]:
    """Return the operators that compute by compiled Metal kernels alone.

    Args:
        image: ``libtorch_cpu.dylib``.
        names: of its compiled kernels.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    known = bases(names)
    # A name that is joined from parts may be that of no kernel of this operator.
    code = Code(image, (), near=0)
    results = {}
    for name, registration in native(image, "MPS".__eq__):
        if route := _follow(code, registration.addresses, known):
            results[name] = route
    return results


def _follow(code: Code, addresses: Iterable[int], known: Mapping[str, set[str]]) -> Route | None:
    """Return what a kernel reaches; None where it reaches a graph or an operator that computes, or no kernel."""
    casting: set[int] = set()
    others: set[int] = set()

    def follows(at: int, target: int) -> bool:
        symbol = code.image.names_at(target)[0]
        operator = OPERATOR.match(symbol)
        if any(_BINARY in name for name in code.image.names_at(at)):
            casting.add(at)
            operator = None
        memory = operator and _MEMORY.fullmatch(operator["rest"][: int(operator["length"])])
        if _GRAPH.search(symbol) or (operator and not memory):
            others.add(target)
        followed = not operator and _FOLLOWED.match(symbol) and not others
        return bool(followed) and not _LEFT.search(symbol.partition("E")[0])

    entries = filter(code.image.in_text, addresses)
    strings = code.texts(walk(entries, code.targets, follows, _DEPTH))
    if others:
        return None
    kernels = {
        name for name in known if {name, f"{name}_"} & strings or any(s.startswith(f"{name}_{{") for s in strings)
    }
    texts = sorted(text for text in strings if "not implemented for" in text)
    return Route(tuple(sorted(kernels)), tuple(texts), bool(casting)) if kernels else None
