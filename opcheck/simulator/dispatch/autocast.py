"""Simulate ``torch.autocast("mps")`` of the target release.

The kernels of the dispatch key AutocastMPS are in every build since 2.5, but they ask ``tensor.is_mps()`` in C++,
which the simulated tensor answers with no.  The same policies from Python: aten/src/ATen/autocast_mode.h and .cpp
(2.5 to 2.15), for the operators of the target's own list.
"""

import contextlib
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
from opcheck.simulator.dispatch.operators.operator import overload_named
from opcheck.simulator.dispatch.tensor import MPSTensor, is_on_mps
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


REFUSED = msgspec.convert(load_shipped(Path(__file__).with_suffix(".yaml")), tuple[Refused, ...])


def warning_for(target: Target, dtype: torch.dtype) -> str | None:
    """Return the warning of an autocast that is disabled on the target; None if it works."""
    name = str(dtype).removeprefix("torch.")
    return next((row.text for row in REFUSED if row.is_about(target, name)), None)


# -- policies -----------------------------------------------------------------------------------------------


def _eligible(value: Any) -> bool:
    # autocast_mode.h, is_eligible
    return is_on_mps(value) and value.is_floating_point() and value.dtype is not torch.float64


def _cast(value: Any, dtype: torch.dtype, casts: Casts) -> Any:
    kind = type(value)
    if is_on_mps(value):
        wanted = _eligible(value) and value.dtype != dtype
        return _cached_cast(value, dtype, casts) if wanted else value
    if kind is list or kind is tuple:
        return kind(_cast(item, dtype, casts) for item in value)
    return value


def _cached_cast(tensor: MPSTensor, dtype: torch.dtype, casts: Casts) -> torch.Tensor:
    # autocast_mode.cpp, cached_cast: float32 weights that autograd made leaves, and only for the lower dtype.
    cacheable = (
        dtype == _lower()
        and tensor.dtype is torch.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and not is_view(tensor)
        and torch.is_autocast_cache_enabled()
    )
    if not cacheable:
        return tensor.to(dtype)
    cached = casts.get(id(tensor))
    if cached is None:
        cached = casts[id(tensor)] = (tensor, tensor.to(dtype))
    return cached[1]


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
            cast = {key: _cast(value, dtype, casts) for key, value in kwargs.items()}
            return operator(*(_cast(value, dtype, casts) for value in args), **cast)

    return kernel


# -- installation -------------------------------------------------------------------------------------------


def _policies_of(target: Target) -> frozenset[tuple[str, str]]:
    return frozenset(load().operators(str(target.torch), "AutocastMPS").items())


def _refusal(ask: TargetQueries, dtype: torch.dtype) -> str | None:
    """Return the warning for the dtype; if autocast works, query the target's policies as well."""
    text = ask(warning_for, dtype)
    if text is None:
        ask(_policies_of)
    return text


def _refused_device(target: Target) -> str:
    """Return the error of a release whose autocast does not know mps (torch/amp/autocast_mode.py), else ""."""
    if target.torch >= Version(2, 5):
        return ""
    if target.torch < Version(2, 1):
        return "User specified autocast device_type must be 'cuda' or 'cpu'"
    return "User specified an unsupported autocast device_type 'mps'"


def _require(ask: TargetQueries) -> None:
    text = ask(_refused_device)
    if text:
        raise RuntimeError(text)


def _has_policies(target: Target) -> bool:
    return bool(_policies_of(target))


@contextlib.contextmanager
def autocast_of(
    ask: TargetQueries, policies: Mapping[str, str], cached: Iterable[str]
) -> Iterator[None]:
    """Simulate the target's autocast: ``policies`` by overload; ``known`` are the overloads of all releases.

    An overload of another release's list falls through, as it does where nothing is registered.
    """
    library = torch.library.Library("aten", "IMPL", "AutocastMPS")
    casts: Casts = {}
    module = torch.amp.autocast_mode
    init, clear = module.autocast.__init__, torch.clear_autocast_cache
    available = module.is_autocast_available

    def result(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
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
