"""The simulator with values: every tensor on MPS has a real CPU tensor, of any size."""

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from opcheck.common.text import one_line
from opcheck.common.versions import Span, Target, Version
from opcheck.device.emulator.child import mac_errors
from opcheck.device.emulator.child.mac_errors import CpuRefusesError, is_run_by_the_cpu, mac_error
from opcheck.numerics.kernels.child.kernel_check import KernelCheck
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.calls import flat_tensors
from opcheck.simulator.dispatch.dispatch_context import OF_THIS_MACHINE
from opcheck.simulator.dispatch.dispatcher import Simulator
from opcheck.simulator.dispatch.routes import BoundCall, Route
from opcheck.simulator.dispatch.tensor import MPSTensor
from opcheck.simulator.errors import NotSimulatedError
from opcheck.tracing.torch_private.dispatch import without_function_modes

_COPIES = frozenset({"aten::copy_", "aten::_to_copy"})
#: dtypes that no tensor on MPS has
_DOUBLES = frozenset({torch.float64, torch.complex128})
#: EmptyTensor.cpp; mps/EmptyTensor.cpp checks no overflow, except where there are strides
_OVERFLOW = re.compile(r"Storage size calculation overflowed with sizes=\[([\d, ]+)\]$")
#: what the CPU's allocation raises (c10/core/impl/alloc_cpu.cpp)
_NO_MEMORY = re.compile(f"DefaultCPUAllocator: can't allocate memory|{_OVERFLOW.pattern}")
#: Copying from MPS writes nothing into a tensor of such a dtype (Copy.mm); a new tensor is often zeros.
_LOST_DOUBLES = Span.of("2.14", "2.15")


class Emulator(Simulator):  # type: ignore[no-untyped-call]  # TorchDispatchMode's own
    """Computes each leaf call on the CPU, where the target's verdict lets it run."""

    #: called with the bytes of a tensor before it is made; raises what a Mac raises for a tensor that is too large
    check_size: Callable[[int], None] = staticmethod(lambda _nbytes: None)
    #: computes calls a second time by the release's kernels; None: it does not
    kernel_check: KernelCheck | None = None

    def _compute(self, bound: BoundCall, on_mps: list[MPSTensor], device: torch.device) -> Any:
        route = bound.route
        if not on_mps:
            self._check_size(route, bound.args, bound.kwargs)
        loses = bool(on_mps) and route.name in _COPIES and target_reads.READS.now(_release) in _LOST_DOUBLES
        if loses and route.writes and bound.args[0].dtype in _DOUBLES:
            return bound.args[0]
        if not all(tensor._mps.payload is not None for tensor in on_mps):
            # The simulator follows the body of a composite, on tensors without values.
            result = super()._compute(bound, on_mps, device)
        else:
            result = self._compute_real(bound, device)
        if loses and not route.writes and result.dtype in _DOUBLES:
            result.zero_()
        return result

    def _execute(self, route: Route, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # A view of normal values is made in inference mode, too, and written to or saved for a backward outside of it.
        inference = torch.is_inference_mode_enabled()
        with torch.inference_mode(mode=False) if inference else contextlib.nullcontext():
            if self.kernel_check is None:
                return self._execute_checked(route, args, kwargs)
            with without_function_modes():
                prepared = self.kernel_check.prepare(route.name, route.func, args, kwargs)
            result = self._execute_checked(route, args, kwargs)
            if prepared is None:
                return result
            with without_function_modes():
                return self.kernel_check.compare_result(prepared, result)

    def _execute_checked(self, route: Route, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = route.operator.emulate or route.func
        try:
            with without_function_modes():
                return function(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            if _NO_MEMORY.search(str(error)):
                self._check_size(route, args, kwargs)
                raise NotSimulatedError(f"{route.name}: the result does not fit into this machine's memory") from error
            release = target_reads.READS.now(_release)
            inside = self._arguments_unchecked(error, route, BoundCall(route, args, kwargs).name_arguments(), release)
            if inside is not None:
                return function(
                    *(inside[name] for name in route.arguments[: len(args)]), **{name: inside[name] for name in kwargs}
                )
            if route.operator.not_emulated and isinstance(error, NotImplementedError):
                text = f"{route.name} has a kernel on MPS alone, and nothing here computes its values"
                raise NotSimulatedError(text) from error
            shown = mac_error(error, route.name, (*args, *kwargs.values()), self._registrations, release)
            if shown is error:
                by_cpu = is_run_by_the_cpu(route.name, self._registrations)
                # Its own CPU computes, or all devices share the check.
                if by_cpu or mac_errors.is_refused_everywhere(error, route.func, args, kwargs):
                    mac_errors.mark_raised_on_a_mac(error)
                else:
                    text = f"this machine's CPU refuses it ({one_line(error)}), and whether a Mac does is not known"
                    vars(error)[OF_THIS_MACHINE] = text
                raise
            wider = route.operator.emulate_wider
            if isinstance(shown, CpuRefusesError) and wider and release >= wider.since:
                return wider.function(*args, **kwargs)
            raise shown from None

    def _check_size(self, route: Route, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise what a Mac raises for a result that is too large, before the CPU takes memory for it."""
        results: Any = ()
        try:
            with without_function_modes():
                results = mac_errors.compute_without_values(route.func, args, kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if (overflow := _OVERFLOW.match(str(error))) and any(isinstance(each, list) for each in args):
                self._check_overflow(math.prod(map(int, overflow[1].split(","))), route, args, kwargs)
        for result in flat_tensors(results):
            self.check_size(result.nbytes if result.layout is torch.strided else 0)

    def _check_overflow(self, elements: int, route: Route, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise what a Mac raises for so many elements: its size in bytes wraps around (mps/EmptyTensor.cpp)."""
        none = tuple([0] if isinstance(each, list) else each for each in args)
        self.check_size(elements * mac_errors.compute_without_values(route.func, none, kwargs).itemsize % (1 << 64))
        if elements >= 1 << 63:  # c10/core/TensorImpl.h
            raise mac_errors.mark_raised_on_a_mac(RuntimeError("numel: integer multiplication overflow"))
        raise NotSimulatedError(f"{route.name}: 64 bits cannot count its bytes, and a Mac allocates too few")

    def _arguments_unchecked(
        self, error: Exception, route: Route, given: dict[str, Any], release: Version
    ) -> Mapping[str, Any] | None:
        """Return the arguments to continue a call with that the CPU refuses and a Mac does not check.

        Raises:
            RefusedError: a Mac checks an index, too.
            RuntimeError ...: a Mac checks a value, too.
        """
        if is_run_by_the_cpu(route.name, self._registrations):
            return None
        instead = mac_errors.find_mac_outcome(error, route.name, given, release)
        if isinstance(instead, Exception):
            raise mac_errors.mark_raised_on_a_mac(instead) from None
        if instead is not None:
            self.not_computed = f"the CPU refuses it ({error}), and a Mac does not check that: its result is not known"
            return instead
        try:
            inside = mac_errors.in_range(error, route.name, given, release)
        except (KeyError, IndexError, AttributeError):
            return None
        if inside is not None:
            self.not_computed = "an index is out of range, which a Mac does not check: its result is not known"
        return inside


def _release(target: Target) -> Version:
    return target.torch
