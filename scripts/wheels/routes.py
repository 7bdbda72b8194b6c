"""What computes an operator on MPS, read from the code of ``libtorch_cpu.dylib``.

The reader starts at the function that the release registers for an overload, follows its calls, and collects marks: a
function of the graph cache, of PyTorch's own Metal libraries, of Metal Performance Shaders, a copy by blit or a copy to
the CPU.  A kernel that only calls other operators has their names in place of marks.

All branches count together: a kernel that chooses between a graph and a Metal kernel has both marks.  Error paths do
not: the compiler puts them into functions named ``.cold``, which other functions may share.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from opcheck.data.wheels.dispatcher import Registration, registrations
from opcheck.data.wheels.image import Image
from opcheck.data.wheels.machine import Address, run
from opcheck.data.wheels.stubs import mps_kernels
from scripts.wheels.bodies import branches
from scripts.wheels.checks import plain

#: By mark the mangled names of the functions that only a kernel of its kind calls (OperationUtils.h and
#: MetalShaderLibrary.h of aten/src/ATen/native/mps, aten/src/ATen/mps/MPSStream.h).  Releases before 2.4 compile Metal
#: sources by MPSDevice.h and by helpers of the files themselves.
MARKS = {
    "graph": re.compile(
        r"runMPSGraph|executeMPSGraph|LookUpOrCreateCachedGraph|MPSGraphCache|UniqueCachedGraph"
    ),
    "metal": re.compile(
        r"MetalShaderLibrary|MetalKernelFunction|exec_(?:unary|binary|ternary)_kernel|PipelineState|metalIndexing"
        r"|compute\w*Library|newFunctionWithName|CPLState"
    ),
    "mps": re.compile(
        r"LookUpOrCreateCachedKernel|MPSKernelCache|sourceArrays:destination|leftMatrix:rightMatrix"
        r"|sourceMatrix:result"
    ),
    "copy": re.compile(
        r"9mps_copy_|13copy_blit_mps|MPSStream4copy|MPSStream13copy_and_sync|MPSStream4fill"
    ),
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
_ENTRY = "wrap_kernel_functor_unboxed_"
#: torchgen's Operators.cpp: a call through the dispatcher is at::_ops::<operator>_<overload>::call.
_OPERATOR = re.compile(r"__ZN2at4_ops(?P<length>\d+)(?P<rest>\w+)")
#: Only the beginning of a name says whose function it is: the types of its arguments follow.
_HEAD = 160


class Reached(NamedTuple):
    """What the kernel of an overload reaches."""

    marks: frozenset[str]
    #: the overloads that it calls through the dispatcher
    calls: frozenset[str]


class _Code:
    """The functions of a library, each read once."""

    def __init__(self, image: Image, operators: Iterable[str]) -> None:
        self.image = image
        self.stubs = mps_kernels(image)
        self.operators = {op.partition("::")[2].replace(".", "_"): op for op in operators}
        self._targets: dict[int, frozenset[int]] = {}

    def targets(self, start: int) -> frozenset[int]:
        """Return what a function calls, jumps to or takes the address of; a stub stands for its kernel for MPS."""
        if start not in self._targets:
            code = self.image.code(start)
            inside = range(start, start + len(code))
            addresses = {*branches(code, start)}
            for event in run(code, start):
                if isinstance(event, Address):
                    addresses.add(self.stubs.get(event.value, event.value))
            self._targets[start] = frozenset(
                at for at in addresses if at not in inside and self.image.in_text(at)
            )
        return self._targets[start]

    def reached(self, entry: int) -> Reached:
        """Return the marks and the calls of operators that a function reaches."""
        marks: set[str] = set()
        calls: set[str] = set()
        seen, left = {entry}, [entry]
        while left:
            for target in self.targets(left.pop()) - seen:
                seen.add(target)
                names = [name for name in self.image.names_at(target) if ".cold" not in name]
                if not names:
                    continue
                mark = next((mark for mark, test in MARKS.items() if _has(test, names)), None)
                operator = self._operator(names)
                if mark is not None:
                    marks.add(mark)
                elif operator is not None:
                    calls.add(operator)
                elif _has(_FOLLOWED, names) and not _has(_SHARED, names):
                    left.append(target)
        return Reached(frozenset(marks), frozenset(calls))

    def entered(self, entry: int) -> set[str]:
        """Return the names of the functions that a function leads to, whatever they compute."""
        seen, left = {entry}, [entry]
        names: set[str] = set()
        while left:
            for target in self.targets(left.pop()) - seen:
                seen.add(target)
                symbols = [name for name in self.image.names_at(target) if ".cold" not in name]
                names.update(map(plain, symbols))
                followed = _has(_FOLLOWED, symbols) or _has(_BELOW, symbols)
                if followed and self._operator(symbols) is None:
                    left.append(target)
        return names

    def _operator(self, names: Iterable[str]) -> str | None:
        for name in names:
            if match := _OPERATOR.match(name):
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
    code = _Code(image, ())
    users: dict[str, set[str]] = defaultdict(set)
    for each in registrations(image):
        entry = _entry(image, each)
        if "MPS" not in each.key or each.namespace != "aten" or not each.name or entry is None:
            continue
        for function in code.entered(entry) & set(functions):
            users[function].add(f"aten::{each.name.removeprefix('aten::')}")
    return {function: frozenset(operators) for function, operators in users.items()}


def read_routes(image: Image, operators: Iterable[str]) -> Mapping[str, Reached | None]:
    """Return what the kernel of each overload that a library registers for MPS reaches; None where none was found.

    Args:
        image: ``libtorch_cpu.dylib``.
        operators: the overloads to recognise among calls, such as ``aten::add.Tensor``.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    code = _Code(image, operators)
    return {
        f"aten::{each.name.removeprefix('aten::')}": code.reached(entry) if entry else None
        for each in registrations(image)
        if each.key == "MPS" and each.namespace == "aten" and each.name is not None
        for entry in [_entry(image, each)]
    }


def _entry(image: Image, registration: Registration) -> int | None:
    """Return the function that the dispatcher enters with unboxed arguments."""
    return next(
        (at for at in sorted(registration.addresses) if _is_entry(image.names_at(at))), None
    )


def _is_entry(names: Iterable[str]) -> bool:
    return any(_ENTRY in name for name in names)
