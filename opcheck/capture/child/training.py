"""One training step, as a plain training loop runs it: labels, loss, optimizer, lost gradients."""

import contextlib
import dataclasses
import difflib
import functools
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import nn

from opcheck.capture.child.build import values
from opcheck.capture.child.calls import parse
from opcheck.capture.child.inputs.specs import Inputs, describe
from opcheck.capture.child.loading.load import Loaded
from opcheck.capture.child.recipes import recipe_engine
from opcheck.capture.child.recipes.recipe_engine import FUNCTIONS, compile_all, evaluate
from opcheck.capture.child.recording.recorder import Recorder
from opcheck.common.errors import UsageError
from opcheck.common.yaml_text import load_shipped
from opcheck.model.records import Problem, SourceLocation
from opcheck.tracing.call_sites import CallSites

# -- labels ----------------------------------------------------------------------------------------


#: Objects in a picture: some, and not a single object.
_OBJECTS = 3

Given = dict[str, Any]


def with_labels(loaded: Loaded, inputs: Inputs) -> Inputs:
    """Return the inputs and, where the model computes a loss of its own from labels, these.

    A model whose kind is not known here gets none: its loss is made from its output (``loss_of``).
    """
    model = loaded.model
    if not isinstance(model, nn.Module):
        return inputs
    parameters = inspect.signature(model.forward).parameters
    try:
        arguments = inspect.signature(model.forward).bind_partial(*inputs.args, **inputs.kwargs)
    except TypeError:
        return inputs  # the model states so itself, once it is called
    result = _labels(model, loaded.family, arguments.arguments)
    added = {name: value for name, value in result.items() if name in parameters}
    if not added or any(arguments.arguments.get(name) is not None for name in added):
        return inputs
    return inputs._replace(
        kwargs={**inputs.kwargs, **added},
        specs=(*inputs.specs, *describe((), added)),
        note="; ".join(filter(None, (inputs.note, f"{', '.join(added)} made for the loss"))),
    )


def _labels(model: nn.Module, family: str, arguments: Given) -> Given:
    if family == "torchvision" and ".detection" in type(model).__module__:
        (images, *_) = arguments.values()
        return {"targets": [_target(image) for image in images]}
    if family != "transformers":
        return {}
    names = [base.__name__ for base in type(model).__mro__]
    labels = next((codes for end, codes in _label_recipes().items() if any(n.endswith(end) for n in names)), {})
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    ids = arguments.get("decoder_input_ids", arguments.get("input_ids"))
    names_in_labels = {
        **{name: value for name, value in {**arguments, "ids": ids}.items() if value is not None},
        **FUNCTIONS,
        "ints": lambda high, *shape: values(shape, torch.int64, high),
        "batch": len(tensors[0]) if tensors else 1,
        "config": model.config,
    }
    try:
        return {name: evaluate(code, names_in_labels) for name, code in labels.items()}
    except NameError:
        return {}


@functools.cache
def _label_recipes() -> dict[str, dict[str, CodeType]]:
    """Return the expressions of the labels by the ends of the names of classes."""
    rows = load_shipped(Path(recipe_engine.__file__).with_name("labels.yaml"))
    return {end: compile_all(row["labels"]) for row in rows for end in row["ends"]}


# -- torchvision's detection ------------------------------------------------------------------------------------


def _target(image: torch.Tensor) -> Given:
    height, width = image.shape[-2:]
    corners = torch.tensor([[0.1, 0.1, 0.4, 0.5], [0.3, 0.2, 0.9, 0.8], [0.5, 0.5, 0.7, 0.9]])
    points = torch.tensor([[0.2, 0.3, 1.0]]).repeat(_OBJECTS, 17, 1)
    return {
        "boxes": corners * torch.tensor([width, height, width, height]),
        "labels": torch.ones(_OBJECTS, dtype=torch.int64),
        "masks": torch.ones(_OBJECTS, height, width, dtype=torch.uint8),
        "keypoints": points * torch.tensor([width, height, 1.0]),
    }


# -- the loss --------------------------------------------------------------------------------------


OWN = "the model's own loss"
RETURNED = "the number that the model returned"
GENERIC = "the mean square of the floating outputs"


class NothingToTrainError(RuntimeError):
    """Backward would have nothing to do."""


class Loss(NamedTuple):
    """The number, and how the report names it."""

    value: torch.Tensor
    text: str


def loss_of(output: Any) -> Loss:
    """Return the loss of a model's output.

    In this order: its ``loss``; the sum of a dict of numbers, as torchvision's detection models return in training;
    the single number that it is; the mean square of every floating tensor in it that has a graph.

    Raises:
        NothingToTrainError: no floating tensor of the output has a graph.
    """
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if _is_number(own) and own.requires_grad:
        return Loss(own, OWN)
    if isinstance(output, Mapping) and output and all(map(_is_number, output.values())):
        values = list(output.values())
        total = sum(values[1:], values[0])
        if total.requires_grad:
            return Loss(total, f"the sum of {', '.join(map(str, output))}")
    if _is_number(output) and output.requires_grad:
        return Loss(output, RETURNED)
    trained = [each for each in _tensors(output) if each.requires_grad]
    squares = [_mean_square(each) for each in trained if each.is_floating_point() or each.is_complex()]
    if not squares:
        raise NothingToTrainError(
            "no output of the model depends on a parameter by a differentiable way: there is "
            "nothing to call backward on"
        )
    return Loss(sum(squares[1:], squares[0]), GENERIC)


def _is_number(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not value.dim() and value.is_floating_point()


def _mean_square(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.float().square().mean()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in the output, however it is nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))


# -- the optimizer ---------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """A class of torch.optim and what it is constructed with."""

    kind: type[torch.optim.Optimizer]
    arguments: dict[str, Any]

    def __str__(self) -> str:
        """Return ``SGD(momentum=0.9)``."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.kind.__name__}({arguments})" if arguments else self.kind.__name__

    @property
    def needs_closure(self) -> bool:
        """True if a step evaluates the model itself, as LBFGS does."""
        closure = inspect.signature(self.kind.step).parameters.get("closure")
        return closure is not None and closure.default is closure.empty


def parse_optimizer(text: str) -> Chosen:
    """Read ``adamw``, ``sgd:momentum=0.9,nesterov=true`` or ``adam:betas=[0.9, 0.95]``.

    Raises:
        UsageError: torch.optim has no such class, or the class no such argument.
    """
    name, arguments = parse(text, "--optimizer")
    kinds = _kinds()
    kind = kinds.get(name.lower())
    context = f"--optimizer {text}, torch {torch.__version__}"
    if kind is None:
        near = difflib.get_close_matches(name.lower(), kinds) or sorted(kinds)
        raise UsageError(
            f"torch.optim has no optimizer {name!r}",
            context=context,
            hint=("did you mean " if len(near) < len(kinds) else "it has ")
            + ", ".join(kinds[match].__name__ for match in near),
        )
    parameters = [*inspect.signature(kind).parameters][1:]
    for argument in arguments:
        if argument not in parameters:
            raise UsageError(
                f"{kind.__name__} takes no {argument!r}", context=context, hint=f"it takes {', '.join(parameters)}"
            )
    return Chosen(kind, arguments)


def _kinds() -> dict[str, type[torch.optim.Optimizer]]:
    base = torch.optim.Optimizer
    types = {name: kind for name, kind in vars(torch.optim).items() if isinstance(kind, type)}
    return {name.lower(): kind for name, kind in types.items() if issubclass(kind, base) and kind is not base}


# -- lost gradients --------------------------------------------------------------------------------
#
# torch only warns of operators that pass no gradient; the parameters before them learn nothing.
# An operator with a kernel on MPS and no derivative of its own goes through the fallback of the autograd key:
# CompositeImplicitAutograd does not serve it (aten/src/ATen/core/dispatch/OperatorEntry.cpp,
# computeDispatchTableEntryWithDebug), VariableFallbackKernel.cpp does, and that warns in backward
# (torch/csrc/autograd/autograd_not_implemented_fallback.cpp).
# ``simulator/dispatch/mps_registrations.py`` registers what the target registers, so the dispatcher here takes the
# same way.


_NO_AUTOGRAD_KERNEL = re.compile(r"(?P<op>\w+::\w+): an autograd kernel was not registered.*?behavior\.")


@contextlib.contextmanager
def lost_gradients_noted() -> Iterator[dict[str, str]]:
    """Collect the block's warnings of lost gradients by operator; others are shown as before."""
    messages: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=r"\w+::\w+: an autograd kernel was not registered")
        show = warnings.showwarning

        def listen(message: Any, *args: Any, **kwargs: Any) -> None:
            match = _NO_AUTOGRAD_KERNEL.match(str(message))
            if match is None:
                show(message, *args, **kwargs)
            else:
                messages.setdefault(match["op"], match[0])

        warnings.showwarning = listen
        yield messages


def lost_gradient_problems(messages: dict[str, str], recorder: Recorder) -> tuple[Problem, ...]:
    """Return a problem for each line that called such an operator before backward."""
    lines: dict[tuple[str, SourceLocation | None], Problem] = {}
    for entry in recorder.calls:
        # The warning names no overload.
        op = entry.call.route.name
        message = messages.get(op.partition(".")[0])
        if message is not None and entry.phase == "forward":
            location, module = recorder.place(entry)
            lines.setdefault(
                (op, location), Problem(kind="gradient_lost", message=message, op=op, location=location, module=module)
            )
    return tuple(lines.values())


# -- the step --------------------------------------------------------------------------------------


class TrainStep:
    """Runs the step; ``loss`` states afterwards which number was minimized."""

    def __init__(self, optimizer: Chosen, autocast: str) -> None:
        self.optimizer = optimizer
        self.autocast = autocast
        self.loss = ""

    def __call__(self, model: torch.nn.Module, args: Any, kwargs: Any, sites: CallSites) -> None:
        """Take the first step of a training loop.

        Raises:
            NothingToTrainError: no parameter requires a gradient, or the loss depends on none.
            Exception: whatever the model or the optimizer raises.
        """
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise NothingToTrainError("no parameter of the model requires a gradient")
        with sites.at("optimizer", self.optimizer.kind.__name__):
            optimizer = self.optimizer.kind(model.parameters(), **self.optimizer.arguments)
            # https://docs.pytorch.org/docs/stable/amp.html: float16 gradients underflow without it.
            scaler = torch.amp.GradScaler("mps", enabled=self.autocast == "float16")

        def evaluate() -> torch.Tensor:
            with autocast(self.autocast):
                output = model(*args, **kwargs)
                with sites.modules.inside("loss"):
                    loss = loss_of(output)
            self.loss = loss.text
            with sites.at("backward", ""):
                torch.autograd.backward(scaler.scale(loss.value))
            return loss.value

        if self.optimizer.needs_closure:
            # Make a step of an optimizer that evaluates the model itself, as often as it needs to.

            def closure() -> torch.Tensor:
                with sites.at("forward", ""):
                    optimizer.zero_grad()
                    return evaluate()

            with sites.at("optimizer", type(optimizer).__name__):
                optimizer.step(closure)  # type: ignore[arg-type]  # the stub wants a float, LBFGS takes both
            return
        evaluate()
        with sites.at("optimizer", self.optimizer.kind.__name__):
            scaler.step(optimizer)
            scaler.update()


def autocast(dtype: str) -> contextlib.AbstractContextManager[Any]:
    """Return ``torch.autocast("mps", dtype)``, or a null context where no dtype is given."""
    if not dtype:
        return contextlib.nullcontext()
    return torch.autocast("mps", dtype=getattr(torch, dtype))
