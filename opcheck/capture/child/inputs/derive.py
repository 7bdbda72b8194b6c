"""Derives inputs for a model that has none, from its library's conventions or its first layer."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from opcheck.capture.child.build import values
from opcheck.capture.child.loading import libraries
from opcheck.capture.child.recipes import pipelines, transformers
from opcheck.common.errors import InputError
from opcheck.common.yaml_text import load_shipped
from opcheck.tracing.torch_private.modules import BatchNorm

Derived = tuple[tuple[Any, ...], dict[str, Any], str]

#: shapes of inputs by the first layer, and by where a model of torchvision lives
_SHAPES: dict[str, dict[str, list[Any]]] = load_shipped(Path(__file__).with_suffix(".yaml"))
#: layer -> the shape of its input
_LAYERS: dict[type[torch.nn.Module], list[Any]] = {
    getattr(torch.nn, name): shape for name, shape in _SHAPES["layers"].items()
}


def derive(model: Callable[..., Any], family: str) -> Derived:
    """Derive arguments to call the model with, and a note for the reader of the report.

    Args:
        model: the model.
        family: whose conventions its forward follows, as ``Loaded.family`` states.

    Raises:
        InputError: nothing is known that it could be called with.
    """
    module = model if isinstance(model, torch.nn.Module) else None
    if module is not None and family == "transformers":
        kwargs, note = transformers.derive(module)
        return (), kwargs, note
    if module is not None and family == "diffusers":
        return (), pipelines.derive(module), "inputs as the configuration describes them"
    if module is not None and family in _FAMILIES:
        return _FAMILIES[family](module), {}, "inputs as the model is documented"
    wrapped = None if module is None else _from_library_model(module)
    return wrapped or _from_first_layer(model)


def _from_library_model(module: torch.nn.Module) -> Derived | None:
    """Derive the inputs of a wrapper (an adapter of peft, a head of the user's own) from the model that it wraps.

    None if it wraps none, if it has layers of its own before it, or if its parameters have other names.
    """
    path, wrapped = next(
        ((path, part) for path, part in module.named_modules() if libraries.is_whole_model(part)), ("", None)
    )
    if wrapped is None or _first_layer(module)[1] is not _first_layer(wrapped)[1]:
        return None
    names, takes_any = _parameters(module.forward)
    needed = _required_names(module.forward)
    cached = _parameters(wrapped.forward)[0]
    family = libraries.family(wrapped)
    try:
        if family == "transformers":
            args: tuple[Any, ...] = ()
            kwargs, note = transformers.derive(wrapped, [name for name in needed if name in cached])
        else:
            args, kwargs, note = derive(wrapped, family)
    except InputError:
        return None
    note += f", for {path} ({type(wrapped).__name__})"
    if takes_any and not needed and not set(kwargs) & set(names):
        return args, kwargs, note
    if kwargs and set(needed) <= set(kwargs):
        return (), {name: value for name, value in kwargs.items() if name in names}, note
    # The one parameter of a wrapper is the wrapped model's main input, whatever its name is.
    main = [*args, *kwargs.values()][:1]
    return (tuple(main), {}, note) if len(needed) == 1 and len(args) + len(kwargs) == 1 else None


def normalizes_batches(model: Callable[..., Any]) -> bool:
    """Return whether a layer of it normalizes by the statistics of the batch."""
    if not isinstance(model, torch.nn.Module):
        return False
    # Also timm's and torchvision's layers of their own, which derive from these.
    return any(isinstance(layer, BatchNorm) for layer in model.modules())


def twice(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a batch of two, if the batch size of each argument is 1; else the arguments as they are."""
    if not all(map(_is_batch_of_one, (*args, *kwargs.values()))):
        return args, kwargs
    return tuple(map(_double, args)), {name: _double(value) for name, value in kwargs.items()}


def _is_batch_of_one(value: Any) -> bool:
    is_tensor = isinstance(value, torch.Tensor) and value.dim() > 1
    # torchvision's detectors take a list of images.
    return (is_tensor or isinstance(value, list)) and len(value) == 1


def _double(value: Any) -> Any:
    return torch.cat([value, value]) if isinstance(value, torch.Tensor) else value * 2


def highest_index(model: Callable[..., Any], name: str = "") -> int:
    """Return one more than the largest integer that every model input of that name may contain."""
    if not isinstance(model, torch.nn.Module):
        return 1
    if "type_ids" in name or "mask" in name:
        return 2
    table = next((layer for layer in model.modules() if isinstance(layer, torch.nn.Embedding)), None)
    return 1 if table is None else table.num_embeddings


def _from_first_layer(model: Callable[..., Any]) -> Derived:
    call = model.forward if isinstance(model, torch.nn.Module) else model
    name = type(model).__name__ if isinstance(model, torch.nn.Module) else getattr(model, "__name__", "")
    needed = _required_names(call)
    path, layer = _first_layer(model) if isinstance(model, torch.nn.Module) else ("", None)
    if len(needed) != 1 or layer is None:
        raise InputError(
            f"opcheck cannot derive the inputs of {name}",
            context=f"{name} takes {', '.join(needed) or 'no required argument that can be read'}",
            hint="give each argument: --input 1x3x224x224:float32 --input name=1x128:int64",
        )
    shape = _shape_for(layer)
    if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
        tensor = values(shape, torch.int64, layer.num_embeddings)
    else:
        tensor = values(shape, next(layer.parameters()).dtype)
    where = f"{path} ({type(layer).__name__})" if path else type(layer).__name__
    return (tensor,), {}, f"the input was guessed from the first layer, {where}: --input sets it"


def _parameters(call: Callable[..., Any]) -> tuple[list[str], bool]:
    """Return the names that a function takes, and whether it takes any others, too."""
    parameters = inspect.signature(call).parameters.values()
    names = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return names, len(names) < len(parameters)


def _required_names(call: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(call).parameters.values()
    except ValueError:
        return []  # a builtin has no signature
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return [each.name for each in positional if each.default is each.empty]


def _first_layer(model: torch.nn.Module) -> tuple[str, torch.nn.Module | None]:
    layer: torch.nn.Module
    for path, layer in model.named_modules():
        if isinstance(layer, tuple(_LAYERS)) and next(layer.parameters(), None) is not None:
            return path, layer
    return "", None


def _shape_for(layer: torch.nn.Module) -> tuple[int, ...]:
    row = next(shape for kind, shape in _LAYERS.items() if isinstance(layer, kind))
    sizes = [getattr(layer, size) if isinstance(size, str) else size for size in row]
    if not getattr(layer, "batch_first", True):
        sizes[:2] = sizes[1::-1]
    *before, last = sizes
    return (*before, *(last if isinstance(last, tuple) else (last,)))


# -- pictures and sound ---------------------------------------------------------------------------------------------


#: A photograph of a camera, as in data sets of detectors: width, height.
_PICTURE = (640, 480)
#: Seconds of sound.
_SECONDS = 4
_RATE = 16000


def process_inputs(processor: Any, model: torch.nn.Module, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Replace the derived picture or sound by the processor's output.

    Args:
        processor: an image processor or a feature extractor of transformers; None leaves the inputs.
        model: the model, whose forward takes them.
        kwargs: the derived inputs.

    Returns:
        The inputs, and the processor's class name; empty: it made none that fit.
    """
    if processor is None:
        return dict(kwargs), ""
    try:
        result = _run_processor(processor, kwargs)
    except Exception:  # noqa: BLE001 - a library's code; the derived inputs do as well
        result = {}
    floating = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    dtype = next(floating, torch.float32)
    taken = inspect.signature(model.forward).parameters
    fitting = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in result.items()
        if name in taken and isinstance(value, torch.Tensor)
    }
    same = [name for name in fitting if name in kwargs and _alike(fitting[name], kwargs[name])]
    if not same:
        return dict(kwargs), ""
    return {**kwargs, **fitting}, type(processor).__name__


def _alike(result: torch.Tensor, derived: torch.Tensor) -> bool:
    """Return whether both have the same form: a video of a single picture is none."""
    is_video = derived.dim() == 5
    return result.dim() == derived.dim() and not (is_video and result.shape[1] != derived.shape[1])


def _run_processor(processor: Any, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    if "pixel_values" in kwargs and "input_ids" not in kwargs:
        from PIL import Image

        return processor(images=Image.new("RGB", _PICTURE, (128, 96, 64)), return_tensors="pt")
    if {"input_features", "input_values"} & kwargs.keys() and "input_ids" not in kwargs:
        import numpy as np

        rate = getattr(processor, "sampling_rate", _RATE)
        wave = np.sin(np.arange(rate * _SECONDS, dtype=np.float32) / 10)
        return processor(wave, sampling_rate=rate, return_tensors="pt")
    return {}


# -- models of timm and torchvision ----------------------------------------------------------------------------------


def _timm(model: Any) -> tuple[Any, ...]:
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", {})
    channels, height, width = settings.get("input_size", (3, 224, 224))
    # An image size or a channel count given to create_model reaches the layers, not the settings.
    height, width = getattr(getattr(model, "patch_embed", None), "img_size", None) or (height, width)
    name = settings.get("first_conv") or ""
    first = getattr(model.get_submodule(name), "in_channels", None) if isinstance(name, str) and name else None
    # TResNet folds four by four pixels into channels first.
    if first not in (None, 16 * channels):
        channels = first
    return (values((1, channels, height, width), _dtype(model)),)


def _torchvision(model: torch.nn.Module) -> tuple[Any, ...]:
    homes = [base.__module__ for base in type(model).__mro__]
    home = next(home for home in homes if home.startswith("torchvision."))
    rows = _SHAPES["torchvision"].items()
    shape = next(tuple(shape) for prefix, shape in rows if any(base.startswith(prefix) for base in homes))
    size = getattr(model, "image_size", None)
    if home == "torchvision.models.vision_transformer" and isinstance(size, int):
        shape = (1, 3, size, size)
    image = values(shape, _dtype(model))
    if "detection" in home:
        return ([image],)
    return (image, image.flip(-1)) if "optical_flow" in home else (image,)


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters()), torch.float32)


#: Family -> what makes the positional arguments.
_FAMILIES: dict[str, Callable[[torch.nn.Module], tuple[Any, ...]]] = {"timm": _timm, "torchvision": _torchvision}
