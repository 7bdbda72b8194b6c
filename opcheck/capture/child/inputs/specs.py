"""The arguments of a model: as the user wrote them, as they came with the model, or derived."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from opcheck.capture.child.build import LARGEST, values
from opcheck.capture.child.inputs import derive
from opcheck.capture.child.loading.load import Arguments, Loaded
from opcheck.capture.child.recipes import pipelines
from opcheck.capture.child.recipes.pipelines import PipelineModel
from opcheck.capture.dimensions import dimensions, unknown_dimension
from opcheck.capture.request import AS_PIPELINE
from opcheck.capture.word_lists import TABLES
from opcheck.common import documents
from opcheck.common.documents import brief
from opcheck.common.errors import InputError, UsageError
from opcheck.common.files import describe_missing, is_file
from opcheck.common.names import parse_dtype
from opcheck.common.text import type_and_text
from opcheck.tracing.torch_private.trees import tree_map_only

GRAMMAR = "write 1x3x224x224:float32, name=1x128:int64, or scalar:float32"
#: of a size: no 64-bit number has more.
_DIGITS = 19


class InputSpec(NamedTuple):
    """One tensor as it is written on the command line."""

    #: the argument's name; empty for a positional argument.
    name: str
    shape: tuple[int, ...]
    #: as in opcheck.common.names.DTYPES.
    dtype: str

    def __str__(self) -> str:
        """Return ``name=1x128:int64``, which ``parse_input`` reads back."""
        prefix = f"{self.name}=" if self.name else ""
        return f"{prefix}{'x'.join(map(str, self.shape)) or 'scalar'}:{self.dtype}"


class Inputs(NamedTuple):
    """The arguments of one call: plain CPU tensors with real values."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: the tensors among them as text, for the report.
    specs: tuple[str, ...]
    #: where they come from, if the user did not give them; empty if the user did.
    note: str = ""


def inputs_for(
    loaded: Loaded, written: Sequence[str] = (), *, dtype: str = "", files: Sequence[str] = (), train: bool = False
) -> Inputs:
    """Return the inputs of the model: given ones, else those that came with it, else derived ones.

    Args:
        loaded: the model, as ``load`` returned it.
        written: ``--input`` specs in the order of the arguments.
        dtype: what floating inputs are cast to; empty leaves them.
        files: ``--input-file``; with ``written``, the arguments of both.
        train: derived ones are a batch of two if the model has BatchNorm, whose statistics of one sample may be none.

    Raises:
        InputError: a spec or a file does not parse, or nothing is known that the model could be called with.
        UsageError: no dtype has that name.
    """
    note = ""
    if written or files:
        args, kwargs = _make_written([parse_input(text) for text in written], loaded.model)
        read, named = read_files(files)
        args, kwargs = (*args, *read), {**kwargs, **named}
    elif loaded.inputs is not None:
        args, kwargs = loaded.inputs
        usual = AS_PIPELINE if loaded.as_used else "the inputs that came with the model"
        note = loaded.note or (usual if args or kwargs else "")
    else:
        takes_inputs = loaded.takes_inputs or loaded.model
        args, kwargs, note = derive.derive(takes_inputs, loaded.family)
        if loaded.processor is not None and isinstance(takes_inputs, torch.nn.Module):
            kwargs, name = derive.process_inputs(loaded.processor, takes_inputs, kwargs)
            note = f"inputs as {name} makes them" if name else note
        if train and derive.normalizes_batches(loaded.model):
            args, kwargs = derive.twice(args, kwargs)
    if dtype:
        number = getattr(torch, parse_dtype(dtype))
        args, kwargs = tree_map_only(
            torch.Tensor, lambda tensor: tensor.to(number) if tensor.is_floating_point() else tensor, (args, kwargs)
        )
    return Inputs(args=args, kwargs=kwargs, specs=tuple(describe(args, kwargs)), note=note)


def parse_input(text: str) -> InputSpec:
    """Read ``1x3x224x224:float32``, ``name=1x128:int64``, ``scalar:int64`` or ``:float32``.

    The dtype is float32 where none is given.

    Raises:
        InputError: the text is not of that form; the message has the position.
    """
    name, equals, rest = text.rpartition("=")
    if equals and not name.isidentifier():
        raise _unreadable(text, 0, f"{name!r} is not the name of an argument")
    sizes, _, dtype = rest.partition(":")
    start = len(text) - len(rest)
    try:
        kind = parse_dtype(dtype) if dtype else "float32"
    except UsageError as error:
        raise _unreadable(text, start + len(sizes) + 1, error.message) from error
    if sizes in ("", "scalar"):
        if not rest:
            raise _unreadable(text, start, "expected a shape")
        return InputSpec(name=name, shape=(), dtype=kind)
    shape = []
    for size in sizes.split("x"):
        if not (size.isascii() and size.isdigit() and len(size) <= _DIGITS):
            raise _unreadable(text, start, f"expected a size, found {brief(size)}")
        shape.append(int(size))
        start += len(size) + 1
    return InputSpec(name=name, shape=tuple(shape), dtype=kind)


def describe(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    """Yield each tensor among the arguments as text; one inside a container with the path to it."""
    for value in args:
        yield from _describe("", value)
    for name, value in kwargs.items():
        yield from _describe(name, value)


def _describe(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        yield str(InputSpec(name=path, shape=tuple(value.shape), dtype=dtype))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _describe(f"{path}[{key!r}]", item)
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _describe(f"{path}[{position}]", item)


def _unreadable(text: str, position: int, why: str) -> InputError:
    return InputError(f"cannot read the input {brief(text)}: {why}", context=f"character {position + 1}", hint=GRAMMAR)


def _make_written(specs: Sequence[InputSpec], model: Callable[..., Any]) -> Arguments:
    cached = _parameters(model)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for spec in specs:
        if spec.name in kwargs:
            raise InputError(
                f"the input {spec.name!r} is given twice", context=str(spec), hint="give each argument once"
            )
        if spec.name and cached and spec.name not in cached:
            raise InputError(
                f"the model takes no argument {spec.name!r}", context=str(spec), hint=f"it takes {', '.join(cached)}"
            )
        high = derive.highest_index(model, spec.name)
        tensor = values(spec.shape, getattr(torch, spec.dtype), high)
        if spec.name:
            kwargs[spec.name] = tensor
        else:
            args.append(tensor)
    return tuple(args), kwargs


def _parameters(model: Callable[..., Any]) -> list[str]:
    """Return the names that a call accepts; empty where it accepts any."""
    call = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return []
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return []
    return [parameter.name for parameter in parameters]


# -- files of the user's: .pt and .pth of torch.save, .npy, .npz, .safetensors ---------------------------------------


_FILE_GRAMMAR = "write FILE or NAME=FILE, with a suffix of "


def read_files(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments in these files: ``FILE``, or ``NAME=FILE`` for the argument of that name.

    A file of one tensor is one argument, a file of named tensors gives each to the argument of its name, a list of
    tensors goes by position.

    Raises:
        InputError: no such file, no such format, or it contains something else.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        content = _content(Path(path if equals else text), text)
        if equals:
            kwargs[name] = content
        elif isinstance(content, Mapping):
            kwargs.update(content)
        elif isinstance(content, (list, tuple)):
            args += content
        else:
            args.append(content)
    return tuple(args), kwargs


def _content(path: Path, text: str) -> Any:
    reader = _READERS.get(path.suffix.lower())
    if reader is None or not is_file(path):
        raise InputError(
            describe_missing(path) if reader else f"cannot read inputs from {path.name}",
            context=f"--input-file {text}",
            hint=_FILE_GRAMMAR + ", ".join(_READERS),
        )
    try:
        return reader(path)
    except Exception as error:
        raise InputError(
            f"cannot read {path.name}: {type_and_text(error)}",
            context=f"--input-file {text}",
            hint="save tensors alone, in a list or in a dict by the names of the arguments",
        ) from error


def _numpy(path: Path) -> Any:
    with documents.open_file(path) as file:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return torch.from_numpy(content)
        size = sum(member.file_size for member in content.zip.infolist())
        if size > documents.MOST_LARGE:
            raise ValueError(f"its arrays unpack to {size:,} bytes")
        return {name: torch.from_numpy(content[name]) for name in content.files}


def _torch(path: Path) -> Any:
    with documents.open_file(path) as file:
        return torch.load(file, map_location="cpu", weights_only=True)


def _safetensors(path: Path) -> Any:
    from safetensors.torch import load

    return load(documents.read(path, documents.MOST_LARGE))


_READERS: dict[str, Callable[[Path], Any]] = {
    ".pt": _torch,
    ".pth": _torch,
    ".npy": _numpy,
    ".npz": _numpy,
    ".safetensors": _safetensors,
}


# -- call a model with inputs of other sizes, by the names of their dimensions ---------------------------------

#: The argument of a pipeline that sets a dimension.
_OF_PIPELINES = {"height": "height", "width": "width", "frames": "num_frames", "batch": "num_images_per_prompt"}


def sizes_of(inputs: Inputs, model: torch.nn.Module) -> dict[str, int]:
    """Return the dimensions of the inputs that may vary, with their sizes."""
    if isinstance(model, PipelineModel):
        return _sizes_of_pipeline(inputs, model)
    return {name: axes[0].size for name, axes in dimensions(inputs.specs).items()}


def _sizes_of_pipeline(inputs: Inputs, model: PipelineModel) -> dict[str, int]:
    if model.pipeline is None:
        return {}
    parameters = inspect.signature(model.pipeline.__call__).parameters
    side = pipelines.side_of(model.pipeline)
    usual = {"height": side, "width": side, "frames": pipelines.FRAMES, "batch": 1}
    defaults = {name: parameters[each].default for name, each in _OF_PIPELINES.items() if each in parameters}
    return {
        name: inputs.kwargs.get(_OF_PIPELINES[name], default if type(default) is int else usual[name])
        for name, default in defaults.items()
    }


def resize(inputs: Inputs, model: torch.nn.Module, sizes: Mapping[str, int]) -> Inputs:
    """Return the inputs with other sizes; what a longer tensor has more is a repetition.

    Raises:
        UsageError: the inputs have no such dimension.
        InputError: a tensor would be larger than opcheck makes.
    """
    if not sizes:
        return inputs
    known = sizes_of(inputs, model)
    for name in sizes:
        if name not in known:
            raise unknown_dimension(name, known)
    if isinstance(model, PipelineModel):
        changed = {_OF_PIPELINES[name]: size for name, size in sizes.items()}
        return inputs._replace(kwargs={**inputs.kwargs, **changed})
    axes = dimensions(inputs.specs)
    changes: dict[int, dict[int, int]] = {}
    for name, size in sizes.items():
        for each in axes[name]:
            changes.setdefault(each.place, {})[each.axis] = size
    places = iter(range(len(inputs.specs)))
    args = tuple(_resize_value(value, places, changes) for value in inputs.args)
    kwargs = {name: _resize_value(value, places, changes) for name, value in inputs.kwargs.items()}
    specs = tuple(describe(args, kwargs))
    return inputs._replace(args=args, kwargs=kwargs, specs=specs)


def _resize_value(value: Any, places: Iterator[int], changes: Mapping[int, Mapping[int, int]]) -> Any:
    """Return a value with the tensors in it resized, in the order of ``describe``."""
    if isinstance(value, torch.Tensor):
        for axis, size in changes.get(next(places), {}).items():
            shape = [*value.shape[:axis], size, *value.shape[axis + 1 :]]
            if math.prod(shape) > LARGEST:
                raise InputError(
                    f"an input of {'x'.join(map(str, shape))} is more than opcheck makes",
                    context="--vary",
                    hint="give a smaller range",
                )
            value = value.index_select(axis, torch.arange(size) % value.shape[axis])
        return value
    if isinstance(value, dict):
        return {key: _resize_value(item, places, changes) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_resize_value(item, places, changes) for item in value)
    return value


# -- Change a loaded model as a user would who wants it to take less memory --


#: A change -> the methods of a pipeline, of its VAE or of a model that make it; the first one that exists is called.
_METHODS: dict[str, list[str]] = TABLES["change_methods"]


def change(model: torch.nn.Module, inputs: Inputs, changes: Sequence[str]) -> Inputs:
    """Make the changes, and return the inputs.

    Raises:
        InputError: the model does not have one of them.
    """
    for each in changes:
        name, equals, size = each.partition("=")
        if equals:
            inputs = resize(inputs, model, {name: int(size)})
            continue
        method = _find_method(model, each)
        if method is None:
            raise InputError(
                f"the model has no method for {each.replace('_', ' ')}",
                context=type(model).__name__,
                hint=f"these are known: {', '.join(_METHODS.get(each, ()))}",
            )
        method()
    return inputs


def _find_method(model: torch.nn.Module, name: str) -> Callable[[], Any] | None:
    for path in _METHODS.get(name, ()):
        method: Any = model
        if isinstance(model, PipelineModel) and not path.startswith("pipeline."):
            method = model.pipeline
        for part in path.split("."):
            method = getattr(method, part, None)
        if callable(method):
            return method
    return None
