"""Models of the libraries, from their configurations: nothing is ever downloaded."""

import difflib
import importlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from opcheck.capture.child.recipes.recipe_engine import CHOSEN, recipes
from opcheck.common.errors import ModelLoadError
from opcheck.common.text import type_and_text
from opcheck.common.versions import Version
from opcheck.data.extensions import paired_line
from opcheck.tracing.source_locations import describe_raise

Config = dict[str, Any]

#: Keyword arguments of every transformers configuration that are not attributes of it.
_HIDDEN = {"attn_implementation", "dtype", "torch_dtype", "experts_implementation"}

#: Library -> the attribute that its models have, and that their layers do not have.
_MARKS = {"transformers": "main_input_name", "timm": "pretrained_cfg", "diffusers": "config_name"}


def find(name: str, spec: str, package: str = "") -> ModuleType:
    """Import a library; ``package`` is its name on the index where it is another.

    Raises:
        ModelLoadError: it is not installed, or its import fails.
    """
    # Read when huggingface_hub is imported: a configuration must not fetch a backbone's weights.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec(name) is None:
        raise ModelLoadError(
            f"{name} is not installed",
            context=f"model {spec}",
            hint=f"python -m pip install {_requirement(name, package)}",
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise ModelLoadError(
            f"importing {name} raises {type_and_text(error)}",
            context=describe_raise(error),
            hint=f"install a {name} that fits torch {torch.__version__}",
        ) from error


def _requirement(name: str, package: str) -> str:
    """Return what pip installs: the release that fits the installed torch, which stays as it is."""
    line = paired_line(name, str(Version.parse(torch.__version__)))
    return f"--no-deps {name}=={line}.*" if line else package or name


def build(prefix: str, library: ModuleType, name: str, config: Config, dtype: torch.dtype | None) -> torch.nn.Module:
    """Return the model from its configuration, its floating parameters cast to ``dtype``.

    Raises:
        ModelLoadError: the library has no such model, or its configuration no such key.
        Exception: whatever the constructor raises.
    """
    if dtype is not None and prefix == "transformers":
        # The class casts itself, and leaves the tables of positions in float32.
        config, dtype = {"dtype": dtype, **config}, None
    model = LOADERS[prefix](library, name, config)
    return model if dtype is None else cast(model, dtype)


def cast(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Cast the floating weights of a model to ``dtype``, as loading them with that dtype does.

    diffusers leaves in float32 the modules that its class names, and what is no weight, such as tables of positions
    (diffusers 0.42.1, models/model_loading_utils.py lines 238 to 248).
    """
    if family(model) != "diffusers":
        return model.to(dtype)
    kept = {*(getattr(model, "_keep_in_fp32_modules", None) or ())}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(torch.float32 if kept & {*name.split(".")} else dtype)
    return model


def family(model: Any) -> str:
    """Return the library whose conventions the model's forward follows; ``export`` or ``user`` if none."""
    if isinstance(model, torch.fx.GraphModule):
        return "export"
    # A subclass in the user's own file still has the library's forward.
    for base in type(model).__mro__:
        root = base.__module__.partition(".")[0]
        if root in LOADERS:
            return root
        if base.__dict__.get("forward") is not None:
            return "user"
    return "user"


def is_whole_model(module: Any) -> bool:
    """Return whether it is a library's model with its configuration, and no layer of such a model."""
    mark = _MARKS.get(family(module))
    return mark is not None and hasattr(module, mark)


def _transformers(library: ModuleType, name: str, config: Config) -> torch.nn.Module:
    kind = _class(library, name, "transformers")
    if kind.config_class is None:
        raise ModelLoadError(
            f"transformers.{name} is a name for many models",
            context=f"model transformers:{name}",
            hint="name a single model: transformers:LlamaForCausalLM",
        )
    defaults = kind.config_class()
    for key in config:
        # A configuration takes every key and ignores those that it does not know.
        if key not in _HIDDEN and not hasattr(defaults, key):
            near = difflib.get_close_matches(key, defaults.to_dict())
            raise ModelLoadError(
                f"{kind.config_class.__name__} has no {key!r}",
                context=f"configuration of transformers:{name}",
                hint=_suggest(near, f"print(transformers.{kind.config_class.__name__}())"),
            )
    open_settings = recipes("transformers").open_settings(kind.config_class.__name__, kind.__name__)
    chosen = {name: value for name, value in open_settings.items() if name not in config}
    config = {**chosen, **config}
    settings = kind.config_class(**config) if config else defaults
    if getattr(settings, "use_pretrained_backbone", False):
        settings.use_pretrained_backbone = False  # transformers 4 would download it
    model = kind._from_config(settings)
    CHOSEN[model] = tuple(chosen)
    return model


def _timm(library: ModuleType, name: str, config: Config) -> torch.nn.Module:
    if not library.is_model(name):
        raise _no_model("timm", name, library.list_models(), "timm.list_models()")
    return library.create_model(name, pretrained=False, **config)


def _torchvision(library: ModuleType, name: str, config: Config) -> torch.nn.Module:
    models = library.models
    try:
        builder = models.get_model_builder(name)
    except ValueError as error:
        raise _no_model("torchvision", name, models.list_models(), "torchvision.models.list_models()") from error
    # Only some builders have a backbone, and its weights would be downloaded.
    weights = dict.fromkeys({"weights", "weights_backbone"} & inspect.signature(builder).parameters.keys())
    return builder(**{**weights, **config})


def _diffusers(library: ModuleType, name: str, config: Config) -> torch.nn.Module:
    open_settings = recipes("diffusers").open_settings(name)
    model = _class(library, name, "diffusers")(**{**open_settings, **config})
    CHOSEN[model] = tuple(set(open_settings) - set(config))
    return model


def _no_model(family: str, name: str, names: Iterable[str], listing: str) -> ModelLoadError:
    return ModelLoadError(
        f"{family} has no model {name!r}",
        context=f"model {family}:{name}",
        hint=_suggest(difflib.get_close_matches(name, [*names]), listing),
    )


def _class(library: ModuleType, name: str, family: str) -> Any:
    kind = getattr(library, name, None)
    if kind is None:
        raise ModelLoadError(
            f"{family} has no class {name!r}",
            context=f"model {family}:{name}, {family} {library.__version__}",
            hint=_suggest(difflib.get_close_matches(name, dir(library)), f"dir({family})"),
        )
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        automatic = hasattr(kind, "_model_mapping")
        raise ModelLoadError(
            f"{family}.{name} {'is a name for many models' if automatic else 'is no model'}",
            context=f"model {family}:{name}",
            hint="name a model class: transformers:BertModel, diffusers:UNet2DModel",
        )
    return kind


def _suggest(near: Iterable[str], listing: str) -> str:
    names = ", ".join(near)
    return f"did you mean {names}" if names else f"{listing} names them all"


LOADERS: dict[str, Callable[[ModuleType, str, Config], torch.nn.Module]] = {
    "transformers": _transformers,
    "timm": _timm,
    "torchvision": _torchvision,
    "diffusers": _diffusers,
}
