"""Compute a value for each overload from a wheel: the dispatcher's action on an MPS tensor."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from opcheck.common.errors import OpListError
from opcheck.data.wheels.dispatcher import Registration
from opcheck.data.wheels.schemas import Schema
from opcheck.data.wheels.stubs import UNCONDITIONAL

#: The functions of aten/src/ATen/mps/MPSFallback.mm, as mangled names spell them: the length and
#: the name, then E, which closes the qualified name and comes before the parameters.
_FALLBACK, _ERROR_FALLBACK = "12mps_fallbackE", "18mps_error_fallbackE"
_ERROR_STUB = "23slow_conv2d_forward_mpsE"
#: Kernels of 1.13 and 2.0 that BitwiseOps.mm registers by hand; in the yaml from 2.1 on.
_BY_HAND = frozenset(
    {
        "aten::bitwise_and.Tensor_out",
        "aten::bitwise_or.Tensor_out",
        "aten::bitwise_xor.Tensor_out",
        "aten::bitwise_not.out",
    }
)
#: aten/src/ATen/autocast_mode.h: enum class CastPolicy, in its order.
_POLICIES = (
    "lower_precision_fp",
    "fp32",
    "fp32_set_opt_dtype",
    "fp32_append_dtype",
    "promote",
)
_POLICY = re.compile(r"WrapFunction_ILNS\d*_10CastPolicyE(\d)E")


class Dispatch(msgspec.Struct, frozen=True):
    """The registrations of the ``aten`` namespace that matter for MPS, by dispatch key."""

    kernels: dict[str, frozenset[str]]
    always_fallback: frozenset[str]
    error_stub: frozenset[str]
    autocast: dict[str, str]

    def key(self, name: str) -> frozenset[str]:
        """Return the overloads with a kernel for a dispatch key."""
        return self.kernels.get(name, frozenset())


def dispatch(registrations: tuple[Registration, ...]) -> Dispatch:
    """Sort the registrations into kernels, fallbacks, error stubs and autocast policies.

    Raises:
        OpListError: the backend-wide fallbacks are not the two that MPSFallback.mm knows.
    """
    kernels: dict[str, set[str]] = {}
    special: dict[str, set[str]] = {_FALLBACK: set(), _ERROR_STUB: set()}
    autocast: dict[str, str] = {}
    backend: list[str] = []
    for registration in registrations:
        symbols = " ".join(sorted(registration.symbols))
        if registration.name is None:
            if registration.key == "MPS":
                backend += [name for name in (_FALLBACK, _ERROR_FALLBACK) if name in symbols]
            continue
        if registration.namespace != "aten":
            continue
        name = "aten::" + registration.name.removeprefix("aten::")
        kernels.setdefault(registration.key, set()).add(name)
        if registration.key == "MPS" and registration.from_mps_fallback_file:
            for kind, members in special.items():
                if kind in symbols:
                    members.add(name)
        if registration.key == "AutocastMPS":
            autocast[name] = _policy(name, symbols)
    if sorted(backend) != sorted([_FALLBACK, _ERROR_FALLBACK]):
        raise OpListError(
            "the backend-wide MPS fallbacks are not the two that are known",
            context=f"found: {', '.join(backend) or 'none'}",
            hint="aten/src/ATen/mps/MPSFallback.mm has changed; read it before trusting this list",
        )
    return Dispatch(
        kernels={key: frozenset(names) for key, names in kernels.items()},
        always_fallback=frozenset(special[_FALLBACK]),
        error_stub=frozenset(special[_ERROR_STUB]),
        autocast=autocast,
    )


def _policy(name: str, symbols: str) -> str:
    numbers = set(_POLICY.findall(symbols))
    if len(numbers) != 1 or int(*numbers) >= len(_POLICIES):
        raise OpListError(
            "an autocast registration without one known CastPolicy",
            context=f"{name}: {sorted(numbers)}",
            hint="aten/src/ATen/autocast_mode.h has changed; column.py must learn it",
        )
    return _POLICIES[int(*numbers)]


def check(registrations: Dispatch, schemas: Mapping[str, Schema]) -> None:
    """Check that the library and its native_functions.yaml agree.

    Raises:
        OpListError: they differ by more than the known hand-written registrations.
    """
    by_hand = registrations.always_fallback | registrations.error_stub
    for key in ("MPS", "SparseMPS", "SparseCsrMPS"):
        declared = {name for name, schema in schemas.items() if key in schema.keys}
        registered = registrations.key(key)
        missing = declared - registered
        _expect(f"{key}: in the yaml only", missing, holds=not missing)
        extra = registered - declared - (by_hand | _BY_HAND if key == "MPS" else frozenset())
        _expect(f"{key}: in the library only", extra, holds=not extra)
        if key == "MPS":
            both = by_hand & declared
            _expect("a fallback that the yaml calls a kernel", both, holds=not both)
    is_expected = registrations.error_stub == {"aten::_slow_conv2d_forward"}
    _expect("error stubs", registrations.error_stub, holds=is_expected)
    unknown = frozenset().union(*registrations.kernels.values()) - schemas.keys()
    _expect("kernels without a schema", unknown, holds=not unknown)


def _expect(what: str, names: AbstractSet[str], *, holds: bool) -> None:
    if not holds:
        raise OpListError(
            f"the library and its native_functions.yaml disagree: {what}",
            context=", ".join(sorted(names)[:8]) or "nothing found",
            hint="read the release's MPSFallback.mm and RegisterMPS; then teach column.py",
        )


def column(
    registrations: Dispatch,
    schemas: Mapping[str, Schema],
    python: AbstractSet[str],
    stubs: Mapping[str, bool],
) -> dict[str, str]:
    """Return the value of every overload, in the dispatcher's order of search.

    c10's OperatorEntry::computeDispatchTableEntryWithDebug (core/dispatch/OperatorEntry.cpp): a
    kernel for the key itself, then CompositeExplicitAutogradNonFunctional, then
    CompositeExplicitAutograd, then CompositeImplicitAutograd, then the backend's fallback.  A Python
    registration replaces a kernel of the library.
    """
    missing = {
        name: f"missing_stub:{stub}"
        for name, stub in UNCONDITIONAL.items()
        if not stubs.get(stub, False)
    }
    tables = (
        dict.fromkeys(python, "python_kernel"),
        dict.fromkeys(registrations.always_fallback, "cpu_fallback"),
        dict.fromkeys(registrations.error_stub, "error_stub"),
        _only(missing, registrations.key("MPS")),
        dict.fromkeys(registrations.key("MPS"), "kernel"),
        {
            name: f"out:{schemas[name].out}" if schemas[name].out else "composite_explicit"
            for name in registrations.key("CompositeExplicitAutogradNonFunctional")
        },
        _only(missing, registrations.key("CompositeExplicitAutograd")),
        {
            name: f"wrapper:{schemas[name].base}" if schemas[name].base else "composite_explicit"
            for name in registrations.key("CompositeExplicitAutograd")
        },
        _only(missing, registrations.key("CompositeImplicitAutograd")),
        dict.fromkeys(registrations.key("CompositeImplicitAutograd"), "composite_implicit"),
        dict.fromkeys(registrations.key("CPU"), "cpu_only"),
        dict.fromkeys(schemas, "no_dense_kernel"),
    )
    values: dict[str, str] = {}
    for table in tables:
        for name, value in table.items():
            values.setdefault(name, value)
    return values


def _only(missing: Mapping[str, str], registered: AbstractSet[str]) -> dict[str, str]:
    return {name: value for name, value in missing.items() if name in registered}
