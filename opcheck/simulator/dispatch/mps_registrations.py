"""Install the target's MPS registrations in the dispatcher of the installed torch.

With a kernel for MPS present the dispatcher takes the Mac's decisions: ``aten::linear`` stays
whole, and the generated autograd kernel calls ``linear_backward``, because VariableType kernels are
registered for the alias key Autograd.  The kernels themselves are never reached where the
simulation's dispatch mode is on: its Python key comes first.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Span, Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import load
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.dispatcher import Simulator
from opcheck.simulator.dispatch.operators import BRANCHES
from opcheck.simulator.dispatch.operators.operator import composite, overload_named
from opcheck.simulator.dispatch.routes import KERNEL_VALUES, is_implicit, registered_way
from opcheck.simulator.dispatch.tensor import MPSTensor, is_on_mps
from opcheck.simulator.dispatch.tensor_meta import map_nested
from opcheck.simulator.real_device import unreachable
from opcheck.simulator.target_reads import TargetQueries
from opcheck.tracing.torch_private import dispatch
from opcheck.tracing.torch_private.tensors import is_view

_AUTOCAST = dispatch.DispatchKeySet(dispatch.AUTOCAST_KEY)

#: weights that were cast since the outermost autocast was entered: by identity, the weight and its cast
Casts = dict[int, tuple[torch.Tensor, torch.Tensor]]


class Refused(msgspec.Struct, frozen=True):
    """Releases and dtypes: ``torch.autocast("mps", dtype)`` warns and is disabled; a row of autocast.yaml."""

    since: str
    text: str
    until: str | None = None
    dtypes: frozenset[str] = frozenset()
    all_but: frozenset[str] = frozenset()
    macos_below: int | None = None

    def is_about(self, target: Target, dtype: str) -> bool:
        """Return whether the target refuses the dtype by this row."""
        refused = dtype not in self.all_but if self.all_but else dtype in self.dtypes
        below = self.macos_below is None or target.macos < Version(self.macos_below)
        return refused and below and target.torch in Span.of(self.since, self.until)


REFUSED = msgspec.convert(load_shipped(Path(__file__).with_name("autocast.yaml")), tuple[Refused, ...])


def warning_for(target: Target, dtype: torch.dtype) -> str | None:
    """Return the warning of an autocast that is disabled on the target; None if it works."""
    name = str(dtype).removeprefix("torch.")
    return next((row.text for row in REFUSED if row.is_about(target, name)), None)


# -- policies -----------------------------------------------------------------------------------------------


def _eligible(value: Any) -> bool:
    # autocast_mode.h, is_eligible
    return is_on_mps(value) and value.is_floating_point() and value.dtype is not torch.float64


def _cast(value: Any, dtype: torch.dtype, casts: Casts) -> Any:
    return _cached_cast(value, dtype, casts) if _eligible(value) and value.dtype != dtype else value


def _cached_cast(tensor: MPSTensor, dtype: torch.dtype, casts: Casts) -> torch.Tensor:
    # autocast_mode.cpp, cached_cast: float32 weights that autograd made leaves, and only for the lower dtype.
    is_weight = tensor.requires_grad and tensor.is_leaf and not is_view(tensor)
    lowers = dtype == _lower() and tensor.dtype is torch.float32
    if not (lowers and is_weight and torch.is_autocast_cache_enabled()):
        return tensor.to(dtype)
    if id(tensor) not in casts:
        casts[id(tensor)] = (tensor, tensor.to(dtype))
    return casts[id(tensor)][1]


def _lower() -> torch.dtype:
    return torch.get_autocast_dtype("mps")


def _widest(values: Iterable[Any]) -> torch.dtype:
    # autocast_mode.h, prioritize
    widest = _lower()
    for value in values:
        if type(value) in (list, tuple):
            widest = torch.float32 if _widest(value) is torch.float32 else widest
        elif _eligible(value):
            if value.dtype not in (torch.float32, _lower()):
                raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")
            widest = torch.float32 if value.dtype is torch.float32 else widest
    return widest


#: op_lists/README.md, values of aten.AutocastMPS.json: no release lists another policy for MPS.
POLICIES: dict[str, Callable[[Iterable[Any]], torch.dtype]] = {
    "lower_precision_fp": lambda _values: _lower(),
    "fp32": lambda _values: torch.float32,
    "promote": _widest,
}


def _kernel(name: str, policy: str, casts: Casts) -> Callable[..., Any]:
    operator = overload_named(name)
    chosen = POLICIES[policy]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with dispatch.excluding(_AUTOCAST):
            dtype = chosen((*args, *kwargs.values()))
            cast = functools.partial(_cast, dtype=dtype, casts=casts)
            return operator(*map_nested(cast, args), **map_nested(cast, kwargs))

    return kernel


# -- installation -------------------------------------------------------------------------------------------


def _policies_of(target: Target) -> frozenset[tuple[str, str]]:
    return frozenset(load().operators(str(target.torch), "AutocastMPS").items())


def _refusal(ask: TargetQueries, dtype: torch.dtype) -> str | None:
    """Return the warning for the dtype; if autocast works, query the target's policies as well."""
    if (text := ask(warning_for, dtype)) is None:
        ask(_policies_of)
    return text


def _refused_device(target: Target) -> str:
    """Return the error of a release whose autocast does not know mps (torch/amp/autocast_mode.py), else ""."""
    if target.torch < Version(2, 1):
        return "User specified autocast device_type must be 'cuda' or 'cpu'"
    return "User specified an unsupported autocast device_type 'mps'" if target.torch < Version(2, 5) else ""


def _require(ask: TargetQueries) -> None:
    if text := ask(_refused_device):
        raise RuntimeError(text)


def _has_policies(target: Target) -> bool:
    return bool(_policies_of(target))


@contextlib.contextmanager
def autocast_of(ask: TargetQueries, policies: Mapping[str, str], cached: Iterable[str]) -> Iterator[None]:
    """Simulate the target's autocast: ``policies`` by overload; ``known`` are the overloads of all releases.

    An overload of another release's list falls through, as it does where nothing is registered.
    """
    library = torch.library.Library("aten", "IMPL", "AutocastMPS")
    casts: Casts = {}
    module = torch.amp.autocast_mode
    init, clear = module.autocast.__init__, torch.clear_autocast_cache
    available = module.is_autocast_available

    def result(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if device_type != "mps":
            init(self, device_type, dtype, enabled, cache_enabled)
            return
        _require(ask)
        # The installed torch may refuse what the target takes: it constructs a disabled one of its own dtype.
        init(self, device_type, None, enabled=False, cache_enabled=cache_enabled)
        self.fast_dtype = self.fast_dtype if dtype is None else dtype
        text = _refusal(ask, self.fast_dtype) if enabled else None
        if text is not None:
            warnings.warn(text, stacklevel=2)
        self._enabled = enabled and text is None

    def is_available(device_type: str) -> bool:
        # torch/amp/autocast_mode.py raises RuntimeError where this is False.
        return available(device_type) and (device_type != "mps" or ask(_has_policies))

    def forget() -> None:
        casts.clear()
        clear()

    changes: list[tuple[Any, str, Callable[..., Any]]] = [
        (module.autocast, "__init__", result),
        (module, "is_autocast_available", is_available),
        (torch.amp, "is_autocast_available", is_available),
        (torch, "clear_autocast_cache", forget),
    ]
    try:
        with warnings.catch_warnings():
            # The dispatcher warns once a process that a kernel was overridden, which is intended here.
            warnings.simplefilter("ignore")
            for name in cached:
                if not dispatch.has_schema(name):
                    continue
                if name in policies:
                    library.impl(name, _kernel(name, policies[name], casts))
                elif dispatch.has_kernel(name, "AutocastMPS"):
                    library.impl(name, torch.library.fallthrough_kernel)
        with replace_attributes(changes):
            yield
    finally:
        dispatch.unregister(library)


# -- install the target's MPS registrations in the dispatcher of the installed torch --
# With a kernel for MPS present the dispatcher takes the Mac's decisions: ``aten::linear`` stays
# whole, and the generated autograd kernel calls ``linear_backward``, because VariableType kernels are
# registered for the alias key Autograd.  The kernels themselves are never reached where the
# simulation's dispatch mode is on: its Python key comes first.


def present_and_absent(registrations: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the overloads with a kernel on the target: those that the installed torch has, and those it lacks."""
    names = sorted(name for name, value in registrations.items() if value in KERNEL_VALUES)
    present = [name for name in names if dispatch.has_schema(name)]
    return present, sorted({*names} - {*present})


def install(kernels: Iterable[str], branches: dict[str, Callable[..., Any]]) -> tuple[torch.library.Library, ...]:
    """Register kernels and branches; return the libraries, which take their registrations with them."""
    of_mps, above = (torch.library.Library("aten", "IMPL", key) for key in ("MPS", "AutogradMPS"))
    for name in kernels:
        # torch registers some for MPS on every platform (torch/_refs/linalg/__init__.py, 2.10 to 2.13).
        if not dispatch.has_kernel(name, "MPS"):
            of_mps.impl(name, unreachable(name))
    for name, branch in branches.items():
        if dispatch.has_schema(name):
            above.impl(name, branch)
    return of_mps, above


# -- other targets ---------------------------------------------------------------------------------------------------


def same_dispatch(simulator: Simulator, target: Target, counterpart: Target) -> bool:
    """Return whether the run that ``simulator`` recorded on ``target`` would be the same on ``counterpart``.

    In addition the trace names its target, and what of it the installed torch lacks (``absent``).

    Raises:
        OpListError: the lists have no such torch release.
    """
    if not simulator.context.ask.answered_alike(counterpart) or not target_reads.READS.fits(counterpart):
        return False
    implicit_by_name = {route.name: route.implicit for route in simulator.routes}
    implicit_by_name.update(dict.fromkeys(simulator.passed, True))
    return _ways(implicit_by_name, target) == _ways(implicit_by_name, counterpart)


def note_branches(
    registrations: Mapping[str, str], branches: Mapping[str, Callable[..., Any]], passed: set[str]
) -> dict[str, Callable[..., Any]]:
    """Return the target's branches, and the composites that have a kernel or a branch in another release.

    Each of them notes its calls.

    Args:
        registrations: the target's value of every overload.
        branches: the branches of the target.
        passed: takes the names of the overloads called.
    """
    functions = {name: _noting(name, branch, passed) for name, branch in branches.items()}
    for name in _contested_composites():
        if name not in branches and registrations.get(name) not in KERNEL_VALUES:
            functions[name] = _noting(name, functools.partial(composite, overload_named(name)), passed)
    return functions


def _noting(name: str, function: Callable[..., Any], passed: set[str]) -> Callable[..., Any]:
    def note_and_call(*args: Any, **kwargs: Any) -> Any:
        passed.add(name)
        return function(*args, **kwargs)

    return note_and_call


@functools.cache
def _contested_composites() -> tuple[str, ...]:
    """Return composites of the installed torch that have a kernel, or a branch, in some releases only."""
    lists = load()
    columns = [lists.operators(release.line) for release in lists.releases]
    names = {name for column in columns for name, value in column.items() if value in KERNEL_VALUES}
    names = {name for name in names if not all(c.get(name) in KERNEL_VALUES for c in columns)}
    names |= {name for name, each in BRANCHES.items() if not all(line in each.releases for line in lists.versions)}
    return tuple(sorted(name for name in names if is_implicit(name)))


def _ways(implicit_by_name: Mapping[str, bool], target: Target) -> list[str]:
    registrations = load().operators(str(target.torch))
    branches = {name for name, branch in BRANCHES.items() if target.torch in branch.releases}
    return [
        registered_way(name, implicit=implicit, registrations=registrations, branches=branches)
        for name, implicit in implicit_by_name.items()
    ]
