"""DispatchStubs: the inner function pointers of composites and kernels that exist for MPS."""

import re

from opcheck.common.errors import OpListError
from opcheck.data.wheels.image import Address, Image, Store, run

#: aten/src/ATen/native/DispatchStub.h, DispatchStubImpl: cpu, cuda, hip, mps pointers, eight
#: bytes each; the same in every release from 1.13 to 2.15.
_MPS_POINTER = 0x18
#: Every stub has a CPU default: ``DispatchStub<fn, the stub's own type>::DEFAULT``.
_DEFAULT = re.compile(
    r"DispatchStubI.*NS0_\d+(?P<name>[A-Za-z_]\w*?)(?:_DECLARE_DISPATCH_type)?EE7DEFAULTE$"
)
_OBJECT = re.compile(r"__ZN2at6native\d+(?P<name>[A-Za-z_]\w*)E")

#: Overloads that call a stub whatever their arguments, read from the C++ of each release
#: (aten/src/ATen/native/TensorFactories.cpp, ReduceOps.cpp, TensorAdvancedIndexing.cpp).  Other
#: paths from an operator to a stub without an MPS pointer are guarded by a device check.
UNCONDITIONAL = {
    "aten::kaiser_window": "kaiser_window_stub",
    "aten::kaiser_window.beta": "kaiser_window_stub",
    "aten::kaiser_window.periodic": "kaiser_window_stub",
    "aten::mode.values": "mode_stub",
    "aten::put_": "put_stub",
}


def stub_table(image: Image) -> dict[str, bool]:
    """Return each DispatchStub of the library, and whether an MPS kernel is stored into it.

    ``REGISTER_DISPATCH`` in a .mm file (DispatchStub.h: RegisterMPSDispatch) becomes a store into
    the stub by the file's static initialiser.

    Raises:
        OpListError: an MPS pointer is stored into something that is not a known stub.
    """
    stubs = {
        match["name"]
        for names in image.symbols.values()
        for name in names
        if (match := _DEFAULT.search(name))
    }
    with_mps = _with_mps(image)
    if not with_mps or not with_mps <= stubs:
        raise OpListError(
            "the DispatchStub table cannot be read",
            context=", ".join(sorted(with_mps - stubs)) or "no stub has an MPS pointer",
            hint="aten/src/ATen/native/DispatchStub.h has changed; the reader must learn it",
        )
    return {name: name in with_mps for name in sorted(stubs)}


def _with_mps(image: Image) -> set[str]:
    return {
        match["name"]
        for at in mps_kernels(image)
        for name in image.names_at(at)
        if (match := _OBJECT.fullmatch(name))
    }


def mps_kernels(image: Image) -> dict[int, int]:
    """Return the function that a static initialiser stores into the MPS pointer of each stub, by the stub's address."""
    kernels: dict[int, int] = {}
    for address, _ in image.matching("__GLOBAL__sub_I_"):
        for event in run(image.code(address), address):
            if isinstance(event, Store) and event.address and image.in_text(event.value):
                owner = image.owner(event.address)
                if owner and owner[1] == _MPS_POINTER and _OBJECT.fullmatch(owner[0]):
                    kernels[event.address - _MPS_POINTER] = event.value
    return kernels


def check_unconditional(image: Image) -> None:
    """Check that the functions of the table above still refer to their stubs.

    Raises:
        OpListError: a function no longer does, so the statement may have become false.
    """
    for overload, stub in UNCONDITIONAL.items():
        name = overload.removeprefix("aten::").partition(".")[0]
        places = {at for at, symbols in image.symbols.items() if _mangle(stub) in symbols}
        # ``mode.values`` is implemented by at::native::mode_out (native_functions.yaml).
        functions = (
            at
            for suffix in ("", "_out")
            for at, _ in image.matching(_mangle(name + suffix).removesuffix("E") + "E")
        )
        if not any(_refers(image, at, places) for at in functions):
            raise OpListError(
                f"at::native::{name} no longer refers to {stub}",
                context=f"{overload} in opcheck/data/wheels/stubs.py",
                hint="read the C++ of this release and correct the table",
            )


def _refers(image: Image, address: int, places: set[int]) -> bool:
    return any(
        isinstance(event, Address) and event.value in places
        for event in run(image.code(address), address)
    )


def _mangle(name: str) -> str:
    return f"__ZN2at6native{len(name)}{name}E"
