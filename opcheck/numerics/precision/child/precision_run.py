"""Runs a model on this machine's CPU, and in float64, too.  User code runs here, in the child process."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from opcheck.capture.child.build import OnMps
from opcheck.capture.child.run import leave_uncompiled
from opcheck.capture.request import CaptureRequest
from opcheck.common.picking import pick
from opcheck.model.records import Precision, PrecisionModule, RelativeError
from opcheck.numerics.child.closeness import distance
from opcheck.numerics.child.line_tally import digits
from opcheck.numerics.child.model_run import ModelRun, build_model, describe_break
from opcheck.numerics.precision.child.precision_tally import PrecisionTally
from opcheck.numerics.precision.child.shadow_mode import NOTE, WITHOUT_DOUBLE, ShadowMode, Shadows, is_followed
from opcheck.simulator.real_device import hide_device
from opcheck.tracing.torch_private.modules import with_other_tensors
from opcheck.tracing.torch_private.trees import keystr, tensors, tree_flatten_with_path, tree_map
from opcheck.worker.platform import stop_time_limit
from opcheck.worker.protocol import Say

#: lines, gradients and modules that are kept: a report shows the first of them.
_LINES, _GRADIENTS, _MODULES = 20, 20, 200

_SAME_WAY = (
    "whole numbers, truth values, random numbers and numbers taken out of tensors are those of the "
    "{dtype} run on both sides: where a comparison comes out otherwise, both sides continue the same way"
)
_CPU = "computed by this machine's CPU: a Mac's kernels sum in another order, and may lose more or less"


@hide_device()
def compare(request: CaptureRequest, say: Say) -> tuple[Precision, ...]:
    """Return the model in each dtype of ``request.precision``, call by call with float64.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
        CaptureError: the run broke off.
    """
    model, inputs = build_model(request, say)
    runs = []
    for name in request.precision:
        say(f"running in {name} beside float64")
        with OnMps(), leave_uncompiled([]), torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            run = _PrecisionRun(model, name, train=request.mode == "train")
            runs.append(run(inputs.args, inputs.kwargs, request.model))
    stop_time_limit()
    return tuple(runs)


class _ModuleErrors:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = 0
        self.inherited = self.total = 0.0
        self.bytes_in = self.bytes_out = 0


class _Modules:
    """The inputs and outputs of each module of a model."""

    def __init__(self, root: nn.Module, shadows: Shadows) -> None:
        self._names = {id(module): name for name, module in root.named_modules()}
        self._shadows = shadows
        self._entries: dict[str, _ModuleErrors] = {}

    def watch_calls(self) -> RemovableHandle:
        """Look at every call of a module, for the length of a block with the handle."""
        return register_module_forward_hook(self._note_call, with_kwargs=True)

    def records(self, tally: PrecisionTally) -> Iterator[PrecisionModule]:
        """Yield the modules in the order of their first results."""
        for name, module in self._entries.items():
            errors = {"inherited": digits(module.inherited), "total": digits(module.total)}
            yield PrecisionModule(name=name, at_fault=tally.at_fault[name], **vars(module) | errors)

    def _note_call(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self._names.get(id(module))
        if not name:
            return
        entry = self._entries.setdefault(name, _ModuleErrors(type(module).__name__))
        entry.calls += 1
        read, results = tensors((args, kwargs)), tensors(output)
        entry.inherited = max(entry.inherited, self._error(read))
        entry.total = max(entry.total, self._error(results))
        entry.bytes_in += sum(tensor.nbytes for tensor in read)
        entry.bytes_out += sum(tensor.nbytes for tensor in results)

    def _error(self, values: list[torch.Tensor]) -> float:
        return max((self._shadows.error(tensor) for tensor in values if is_followed(tensor)), default=0.0)


class _PrecisionRun:
    """One run in one dtype."""

    def __init__(self, model: nn.Module, name: str, *, train: bool) -> None:
        self.model = model
        self.name = name
        self.dtype: torch.dtype = getattr(torch, name)
        self.train = train
        self.shadows = Shadows()
        self.run = ModelRun()
        self.tally = PrecisionTally(name)
        self.modules = _Modules(model, self.shadows)

    def __call__(self, args: Any, kwargs: Any, title: str) -> Precision:
        with self._cast():
            args, kwargs = tree_map(self._input, (args, kwargs))
            problem = self._run_model(args, kwargs, title)
            outputs = _errors(self.run.output, self.shadows)
            gradients = sorted(self._gradients(), key=lambda entry: (-float(entry[1]), entry[0]))
        return Precision(
            dtype=self.name,
            **pick(self.tally, "limit", "calls", "divergence", "crossing"),
            lines=tuple(self.tally.lines(_LINES)),
            modules=tuple(self.modules.records(self.tally))[:_MODULES],
            events=tuple(self.tally.events()),
            outputs=dict(outputs),
            gradients=dict(gradients[:_GRADIENTS]),
            loss=self.run.loss,
            complete=not problem,
            notes=(*problem, *self._notes()),
        )

    def _run_model(self, args: Any, kwargs: Any, title: str) -> tuple[str, ...]:
        """Run the model; why the run broke off, if it did."""
        try:
            # oneDNN computes a whole LSTM in one call, and not in float64.
            with torch.backends.mkldnn.flags(enabled=False), self.modules.watch_calls():
                mode = ShadowMode(self.shadows, self.run.sites, self.tally)
                self.run(self.model, args, kwargs, mode, train=self.train, grad=self.train)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - user code: anything, SystemExit included
            text = describe_break(
                error,
                title,
                calls=self.tally.calls,
                doing=f"the run in {self.name} beside float64",
                hint="the model has to run on this machine's CPU; give smaller inputs with --input, or a "
                "smaller model with --config",
            )
            return (f"{text}; what follows was not seen",)
        return ()

    def _cast(self) -> contextlib.AbstractContextManager[None]:
        """Give the model weights in the run's dtype; float64 keeps the values that it was built with."""
        model = self.model
        every = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
        weights = {name: each for name, each in every if each.is_floating_point()}
        cast = {each: self._weight(each) for each in {*weights.values()}}
        return with_other_tensors(model, {name: cast[each] for name, each in weights.items()})

    def _weight(self, tensor: torch.Tensor) -> torch.Tensor:
        cast = self._input(tensor.detach())
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(cast, requires_grad=tensor.requires_grad)
        return cast

    def _input(self, value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point() and is_followed(value)):
            return value.clone() if isinstance(value, torch.Tensor) else value
        cast = value.detach().to(self.dtype, copy=True)
        exact = value.detach().double()
        self.shadows.keep(cast, exact)
        self.shadows.note(cast, distance(cast, exact).relative)
        return cast.requires_grad_(value.requires_grad)

    def _gradients(self) -> Iterator[tuple[str, RelativeError]]:
        for name, parameter in self.model.named_parameters():
            gradient = parameter.grad
            if gradient is not None and is_followed(gradient):
                yield name, digits(self.shadows.error(gradient))

    def _notes(self) -> Iterator[str]:
        yield _CPU
        yield _SAME_WAY.format(dtype=self.name)
        if self.tally.ran & {kernel.name() for kernel in WITHOUT_DOUBLE}:
            yield NOTE
        if self.tally.missed:
            names = ", ".join(sorted(self.tally.missed))
            yield f"not followed in float64, taken as exact from there: {names}"


def _errors(output: Any, shadows: Shadows) -> Iterator[tuple[str, RelativeError]]:
    for path, leaf in tree_flatten_with_path(output)[0]:
        if is_followed(leaf):
            yield keystr(path) or "output", digits(shadows.error(leaf))
