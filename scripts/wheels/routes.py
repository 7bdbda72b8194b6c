"""What computes an operator on MPS, read from the code of ``libtorch_cpu.dylib``.

The reader starts at the function that the release registers for an overload, follows its calls, and collects marks: a
function of the graph cache, of PyTorch's own Metal libraries, of Metal Performance Shaders, a copy by blit or a copy to
the CPU.  A kernel that only calls other operators has their names in place of marks.  Beside the marks it collects the
texts of the code: among them are the names of the Metal kernels.  It executes nothing.

All branches count together: a kernel that chooses between a graph and a Metal kernel has both marks.  Error paths do
not: the compiler puts them into functions named ``.cold``, which other functions may share.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from opcheck.data.wheels.column import mps_kernels
from opcheck.data.wheels.image import Address, Image, run
from opcheck.kernels.kernel_names import WORDS, parse
from scripts.wheels.bodies import OPERATOR, branches, native, unboxed, walk
from scripts.wheels.checks import plain

#: By mark the mangled names of the functions that only a kernel of its kind calls (OperationUtils.h and
#: MetalShaderLibrary.h of aten/src/ATen/native/mps, aten/src/ATen/mps/MPSStream.h), and the messages to Apple's
#: objects that encode the work.  Releases before 2.4 compile Metal sources by MPSDevice.h and by helpers of the files.
MARKS = {
    "graph": re.compile(
        r"runMPSGraph|executeMPSGraph|LookUpOrCreateCachedGraph|MPSGraphCache|UniqueCachedGraph"
        r"|\$encodeToCommandBuffer:feeds"
    ),
    "metal": re.compile(
        r"MetalShaderLibrary|MetalKernelFunction|exec_(?:unary|binary|ternary)_kernel|PipelineState|metalIndexing"
        r"|compute\w*Library|newFunctionWithName|CPLState|\$dispatchThread"
    ),
    "mps": re.compile(
        r"LookUpOrCreateCachedKernel|MPSKernelCache|sourceArrays:destination|leftMatrix:rightMatrix"
        r"|\$encodeToCommandBuffer:source|\$encodeToCommandEncoder"
    ),
    "copy": re.compile(r"9mps_copy_|13copy_blit_mps|MPSStream4copy|MPSStream13copy_and_sync|MPSStream4fill"),
    "cpu": re.compile(r"^__ZNK2at6Tensor3cpuEv"),
}
#: Helpers that prepare arguments of any kernel: what they compute is a part of none in particular.
_SHARED = re.compile(
    r"11Placeholder|13getTensorView|13resize_tensor|20getMPSGraphTensorData|20getStridedMPSNDArray|13castMPSTensor"
    r"|16gatherViewTensor|17scatterViewTensor"
)
#: Functions of ATen, their lambdas and blocks, and code that the compiler outlined.
_FOLLOWED = re.compile(
    r"^_+ZZ*N?K?R?2at6native|^_+ZZ*N?K?2at12_GLOBAL__N_1|^_+ZN?K?2atL|^_+ZL|_block_invoke|^_?OUTLINED_FUNCTION"
    r"|^_+ZZ*N?K?NSt3__110__function6__func.*2at6native"
)
#: The layers of at::mps below ATen's functions: they compute nothing, and they print texts.
_BELOW = re.compile(r"^_+ZZ*N?K?R?2at3mps|^_+ZZ*N?K?2at6native")
#: The name of the device, and what a kernel prints before it moves its arguments there.
_CPU = re.compile(r"^cpu$|[Ff]all\w* back (?:on|to) (?:the )?CPU")
#: A dtype in the name of a kernel.
DTYPE = re.compile(rf"_({'|'.join(sorted(WORDS, key=len, reverse=True))})(?=_|$)")
#: Only the beginning of a name says whose function it is: the types of its arguments follow.
_HEAD = 160


class Reached(NamedTuple):
    """What the kernel of an overload reaches."""

    marks: frozenset[str]
    #: the overloads that it calls through the dispatcher
    calls: frozenset[str]
    #: the texts in its code: names of kernels, texts of checks
    texts: frozenset[str]


class Code:
    """The functions of a library, each read once."""

    def __init__(self, image: Image, operators: Iterable[str], *, near: int = 2) -> None:
        self.image = image
        #: how many values on either side of a value a text may continue in
        self._near = near
        self.stubs = mps_kernels(image)
        self.operators = {op.partition("::")[2].replace(".", "_"): op for op in operators}
        self._targets: dict[int, frozenset[int]] = {}
        self._texts: dict[int, frozenset[str]] = {}

    def targets(self, start: int) -> frozenset[int]:
        """Return what a function calls, jumps to or takes the address of; a stub stands for its kernel for MPS."""
        if start not in self._targets:
            code = self.image.code(start)
            inside = range(start, start + len(code))
            addresses = {*branches(code, start)}
            for event in run(code, start):
                if isinstance(event, Address):
                    addresses.add(self.stubs.get(event.value, event.value))
            self._targets[start] = frozenset(at for at in addresses if at not in inside and self.image.names_at(at))
            outside = (at for at in addresses if not self.image.in_text(at))
            texts = {*map(self.image.string, outside), *_immediates(code, self._near)}
            self._texts[start] = frozenset(filter(None, texts))
        return self._targets[start]

    def texts(self, functions: Iterable[int]) -> frozenset[str]:
        """Return the texts in the code of functions whose targets were read: names of kernels, texts of checks."""
        return frozenset().union(*(self._texts[at] for at in functions))

    def reached(self, entry: int) -> Reached:
        """Return the marks and the calls of operators that a function reaches."""
        marks: set[str] = set()
        calls: set[str] = set()

        def follows(_: int, target: int) -> bool:
            names = self._names(target)
            operator = self._operator(names)
            if found := [mark for mark, test in MARKS.items() if _has(test, names)]:
                marks.add(found[0])
            elif operator is not None:
                calls.add(operator)
            else:
                return _has(_FOLLOWED, names) and not _has(_SHARED, names)
            return False

        walked = walk({entry}, self.targets, follows)
        return Reached(frozenset(marks), frozenset(calls), self.texts(walked))

    def entered(self, entry: int) -> set[str]:
        """Return the names of the functions that a function leads to, whatever they compute."""
        names: set[str] = set()

        def follows(_: int, target: int) -> bool:
            symbols = self._names(target)
            names.update(map(plain, symbols))
            followed = _has(_FOLLOWED, symbols) or _has(_BELOW, symbols)
            return followed and self._operator(symbols) is None

        walk({entry}, self.targets, follows)
        return names

    def _names(self, at: int) -> list[str]:
        return [name for name in self.image.names_at(at) if ".cold" not in name]

    def _operator(self, names: Iterable[str]) -> str | None:
        for name in names:
            if match := OPERATOR.match(name):
                length = int(match["length"])
                return self.operators.get(match["rest"][:length], match["rest"][:length])
        return None


def _has(test: re.Pattern[str], names: Iterable[str]) -> bool:
    return any(test.search(name[:_HEAD]) for name in names)


def read_users(image: Image, functions: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Return the overloads whose kernels for MPS, dense or sparse, lead to each function that some kernel leads to.

    Args:
        image: ``libtorch_cpu.dylib``.
        functions: the qualified names, as ``checks.plain`` gives them.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    code = Code(image, ())
    users: dict[str, set[str]] = defaultdict(set)
    for name, each in native(image, lambda key: "MPS" in key):
        for entry in unboxed(image, each)[:1]:
            for function in code.entered(entry) & set(functions):
                users[function].add(name)
    return {function: frozenset(operators) for function, operators in users.items()}


def read_routes(image: Image, operators: Iterable[str]) -> Mapping[str, Reached | None]:
    """Return what the kernel of each overload that a library registers for MPS reaches; None where none was found.

    Args:
        image: ``libtorch_cpu.dylib``.
        operators: the overloads to recognise among calls, such as ``aten::add.Tensor``.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    code = Code(image, operators)
    results: dict[str, Reached | None] = {}
    for name, each in native(image, "MPS".__eq__):
        entries = unboxed(image, each)
        results[name] = _with_cpu(name, code.reached(entries[0])) if entries else None
    return results


def _with_cpu(name: str, reached: Reached) -> Reached:
    """Add the mark of the CPU to a kernel that computes on the GPU, but leaves some arguments to the CPU.

    It moves them there and calls its own operator: ``at::avg_pool2d(input.to("cpu"), ...)`` (Pooling.mm, 2.9).
    """
    own = {_operator_of(each) for each in reached.calls}
    moves = "aten::_copy_from_and_resize" in reached.calls or any(map(_CPU.search, reached.texts))
    if moves and _operator_of(name) in own and reached.marks & {"graph", "metal", "mps"}:
        return reached._replace(marks=reached.marks | {"cpu"})
    return reached


def _operator_of(name: str) -> str:
    return name.partition(".")[0].rstrip("_")


def _immediates(code: bytes, reach: int = 2) -> Iterator[str]:
    """Yield the short texts that the code builds in registers (Arm A64: MOVZ and MOVK, imm16 at bit 5).

    A text of more than one register is built from neighbouring values, whose order the compiler chooses.
    """
    words = np.frombuffer(code[: len(code) & ~3], dtype="<u4")
    kind = words & np.uint32(0x7F800000)
    values: list[int] = []
    register_of: dict[int, int] = {}
    for word in words[(kind == 0x52800000) | (kind == 0x72800000)].tolist():
        register, shift = word & 31, 16 * (word >> 21 & 3)
        if not word & 0x20000000 or register not in register_of:
            register_of[register] = len(values)
            values.append(0)
        at = register_of[register]
        values[at] = values[at] & ~(0xFFFF << shift) | (word >> 5 & 0xFFFF) << shift
    texts = [value.to_bytes(8, "little").rstrip(b"\0") for value in values]
    for at, text in enumerate(texts):
        near = texts[max(at - reach, 0) : at] + texts[at + 1 : at + 1 + reach]
        near = near if len(text) in {4, 8} else []
        # The last register may repeat the end of the one before: "sigm" and "moid" are "sigmoid".
        joined = (text + rest[n:] for rest in near for n in range(4) if text.endswith(rest[:n]))
        for whole in (text, *joined):
            if len(whole) > 1 and re.fullmatch(rb"[a-z0-9_]+", whole):
                yield whole.decode()


def stems(names: Iterable[str]) -> dict[str, set[str]]:
    """Return the part of each kernel's name before its form and its dtypes, with the dtypes of its kernels."""
    dtypes: dict[str, set[str]] = defaultdict(set)
    for name in names:
        stem = DTYPE.split(parse(name).operation)[0]
        dtypes[stem] |= {WORDS[word] for word in DTYPE.findall(name)}
    return dict(dtypes)


def named_kernels(texts: Collection[str], known: Collection[str]) -> list[str]:
    """Return the beginnings of kernels' names among texts, sorted; ``known`` are those that ``stems`` returns."""
    parts = [each.split("_") for each in known]
    beginnings = {"_".join(words[:n]) for words in parts for n in range(1, len(words) + 1)}
    # A single word is the beginning of a name where a format follows it: "{}_reduction_{}".
    open_ended = any(text.startswith("{}_") for text in texts)
    found = set()
    for text in texts:
        name, brace, _ = text.partition("{")
        name = name.rstrip("_")
        if brace or open_ended or "_" in name or name in known:
            found.add(name)
    return sorted(found & beginnings - set(WORDS))
