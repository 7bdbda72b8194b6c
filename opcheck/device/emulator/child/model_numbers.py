"""Runs a model on the emulated Mac with values: its calls are computed by the release's own kernels, too."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from opcheck.capture.request import AS_IT_IS, CaptureRequest
from opcheck.data.registrations import load
from opcheck.device.emulator.child.session import Emulation
from opcheck.kernels import values
from opcheck.model.records import CheckedShare, KernelNumbers, LayerNumbers, OutputNumbers
from opcheck.numerics.child.closeness import distance
from opcheck.numerics.child.float64 import WIDE
from opcheck.numerics.child.line_tally import digits
from opcheck.numerics.child.model_run import ModelRun, build_model, describe_break
from opcheck.numerics.kernels.child.kernel_run import KernelsMode
from opcheck.numerics.precision.child.precision_tally import LIMITS
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.real_device import hide_device
from opcheck.tracing.torch_private.trees import keystr, tensors, tree_flatten_with_path, tree_map
from opcheck.worker.platform import stop_time_limit
from opcheck.worker.protocol import Say

#: Bytes of the layers' results that are kept to compare with.
_KEPT = 512 << 20
_CPU = "what MPSGraph and Metal Performance Shaders compute is this machine's CPU's, in the layers, too"
_OFF = 1e-4
_NONE = CheckedShare(checked=0, all=0)


@hide_device()
def check(request: CaptureRequest, say: Say) -> tuple[KernelNumbers, ...]:
    """Return the numbers of the model in each dtype of ``request.numbers``.

    Weights and inputs are random, by a fixed seed, where the model and the user give none.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
        CaptureError: the run broke off before a call was compared.
    """
    torch.manual_seed(values.SEED)
    model, inputs = build_model(request, say)
    runs = []
    for name in request.numbers or (AS_IT_IS,):
        say(f"running with the kernels of torch {request.target.torch}")
        runs.append(_NumbersRun(model, request, name)(inputs.args, inputs.kwargs))
    stop_time_limit()
    return tuple(runs)


class _Layers:
    """The results of a model's modules, and those of another run of it."""

    def __init__(self) -> None:
        #: of the modules of the run in progress
        self.names: dict[int, str] = {}
        self.kept: dict[tuple[str, int], list[torch.Tensor]] = {}
        self._bytes = 0

    @contextlib.contextmanager
    def watch(self, look: Any) -> Iterator[None]:
        """Call ``look`` with the name, the module, the number of its call and its results."""
        counts: dict[str, int] = {}

        def hook(module: nn.Module, _args: Any, output: Any) -> None:
            if name := self.names.get(id(module)):
                counts[name] = counts.get(name, -1) + 1
                look(name, module, counts[name], _on_cpu(output))

        handle = register_module_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()

    def keep(self, name: str, _module: nn.Module, number: int, results: list[torch.Tensor]) -> None:
        """Keep the results of a call, while there is room."""
        self._bytes += sum(tensor.nbytes for tensor in results)
        if self._bytes <= _KEPT:
            self.kept[name, number] = [tensor.clone() for tensor in results]


def _on_cpu(output: Any) -> list[torch.Tensor]:
    """Return the floating results as the CPU has them."""
    payloads = [tensor._mps.payload if is_on_mps(tensor) else tensor for tensor in tensors(output)]
    return [
        each.detach() for each in payloads if each is not None and each.dtype in WIDE and each.layout == torch.strided
    ]


class _NumbersRun:
    """A run in one dtype."""

    def __init__(self, model: nn.Module, request: CaptureRequest, name: str) -> None:
        self._model, self._request = model, request
        self._name = "" if name == AS_IT_IS else name
        half = self._name in {"float16", "bfloat16"}
        self._mode: KernelsMode = "replace" if half or request.kernels == "replace" else "shadow"
        self._limit = LIMITS[self._name] if half else _OFF

    def __call__(self, args: Any, kwargs: Any) -> KernelNumbers:
        if self._mode == "shadow":
            numbers, _ = self._run(args, kwargs, self._name, "shadow", None)
            return msgspec.structs.replace(numbers, dtype=self._name)
        # The reference is the model as it is: a half loses digits by itself.
        layers = _Layers()
        _, expected = self._run(args, kwargs, "", "", layers, layers.keep)
        self._found: dict[str, LayerNumbers] = {}
        self._layers = layers
        numbers, outputs = self._run(args, kwargs, self._name, "replace", layers, self._compare)
        found, results = tuple(self._found.values()), tuple(self._outputs(outputs, expected))
        notes = (*numbers.notes, _CPU)
        return msgspec.structs.replace(
            numbers, dtype=self._name, limit=self._limit, layers=found, outputs=results, notes=notes
        )

    def _run(
        self, args: Any, kwargs: Any, dtype: str, mode: KernelsMode, layers: _Layers | None, look: Any = None
    ) -> tuple[KernelNumbers, Any]:
        """Run a copy of the model on the emulated Mac; return what came of the kernels, and its results on the CPU."""
        request = self._request
        run = Emulation(request.target, load(), request.model, mode)
        self._emulation = run
        train = request.mode == "train"
        complete, notes, output = True, tuple[str, ...](), None
        with run.running():
            torch.manual_seed(values.SEED)
            model = copy.deepcopy(self._model)
            if layers is not None:
                layers.names = {id(module): name for name, module in model.named_modules() if name}
            model = model.to("mps", dtype=getattr(torch, dtype) if dtype else None)
            positional, keywords = tree_map(lambda value: _moved(value, dtype), (args, kwargs))
            called = ModelRun()
            watched = layers.watch(look) if layers is not None and look else contextlib.nullcontext()
            try:
                with watched:
                    called(model, positional, keywords, contextlib.nullcontext(), train=train, grad=train)
                output = tree_map(lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, called.output)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                complete = False
                text = describe_break(
                    error, request.model, calls=run.counted_calls, doing="the run with the release's kernels",
                    hint="the model has to run with values on the emulated Mac: opcheck run shows the same",
                )  # fmt: skip
                notes = (f"{text}; what follows was not seen",)
            numbers = run.numbers
        result = numbers or KernelNumbers(
            torch=str(request.target.torch), mode="shadow", seed=values.SEED, calls=_NONE, elements=_NONE, flops=_NONE
        )  # fmt: skip
        return msgspec.structs.replace(result, complete=complete, notes=(*result.notes, *notes)), output

    def _compare(self, name: str, module: nn.Module, number: int, results: list[torch.Tensor]) -> None:
        expected = self._layers.kept.get((name, number))
        if expected is None or len(expected) != len(results):
            return
        error, nonfinite = 0.0, 0
        for tensor, right in zip(results, expected, strict=True):
            if tensor.shape != right.shape:
                return
            error = max(error, distance(tensor, right.to(WIDE[right.dtype])).relative)
            nonfinite += int((~tensor.isfinite() & right.isfinite()).sum())
        if (before := self._found.get(name)) is not None:
            error, nonfinite = max(error, float(before.error)), nonfinite + before.nonfinite
        checked, calls = self._emulation.calls_inside(name)
        self._found[name] = LayerNumbers(
            name=name, kind=type(module).__name__, error=digits(error), nonfinite=nonfinite, checked=checked,
            calls=calls, safe=not nonfinite and error <= self._limit,
        )  # fmt: skip

    def _outputs(self, results: Any, expected: Any) -> Iterator[OutputNumbers]:
        pairs = zip(tree_flatten_with_path(results)[0], tree_flatten_with_path(expected)[0], strict=False)
        for (path, tensor), (_, right) in pairs:
            if not isinstance(tensor, torch.Tensor) or tensor.dtype not in WIDE or tensor.shape != right.shape:
                continue
            exact = right.to(WIDE[right.dtype])
            flips = rows = 0
            if tensor.dim() and tensor.shape[-1] > 1 and not tensor.is_complex() and tensor.numel():
                flips = int((tensor.argmax(-1) != right.argmax(-1)).sum())
                rows = tensor.numel() // tensor.shape[-1]
            error = digits(distance(tensor, exact).relative)
            yield OutputNumbers(path=keystr(path) or "output", error=error, flips=flips, rows=rows)


def _moved(value: Any, dtype: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    cast = getattr(torch, dtype) if dtype and value.is_floating_point() else None
    return value.detach().to("mps", dtype=cast).requires_grad_(value.requires_grad)
