"""Lists the models of the libraries, in a process that imports them."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from opcheck.common.errors import ModelLoadError
from opcheck.common.globs import fits
from opcheck.common.yaml_text import load_shipped
from opcheck.features.sweep.server import preload, prepare
from opcheck.features.sweep.sweep_records import Model
from opcheck.worker.protocol import Say

#: Words for small models in names of a timm family; the first that a name of the family has decides.
_SMALL = ("atto", "femto", "pico", "nano", "tiny", "micro", "xxs", "_xs", "xx_small", "mini", "_s")

#: The models of diffusers that are swept unless a pattern names others.
DIFFUSERS: list[str] = load_shipped(Path(__file__).with_name("diffusers_models.yaml"))

#: A pattern that matches every name: a library then lists one model a family, or its main ones.
ALL = "*"


def transformers_models(library: ModuleType, pattern: str) -> Iterator[Model]:
    """List every public model class that has a configuration of its own and a forward."""
    names = [
        name
        for name, module in library._class_to_module.items()  # noqa: SLF001 - it lists them unimported
        if ".modeling_" in f".{module}"
        and not name.endswith("PreTrainedModel")
        and fits(name, pattern)
    ]
    for name in sorted(names):
        kind: Any = getattr(library, name, None)
        if _is_model(kind, library.PreTrainedModel) and kind.config_class is not None:
            yield Model(spec=f"transformers:{name}", family=kind.config_class.__name__)


def timm_models(library: ModuleType, pattern: str) -> Iterator[Model]:
    """Yield the smallest model of each module of timm, judging by the names; of a pattern all matches."""
    for module in sorted(library.list_modules()):
        names = library.list_models(module=module)
        chosen = [min(names, key=_smallness)] if names and pattern == ALL else names
        for name in _fitting(chosen, pattern):
            yield Model(spec=f"timm:{name}", family=module)


def torchvision_models(library: ModuleType, pattern: str) -> Iterator[Model]:
    """One classifier a family, and every model of the other tasks; of a pattern all that it fits."""
    seen: set[str] = set()
    for name in _fitting(library.models.list_models(), pattern):
        home = library.models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        tasks = ("detection", "segmentation", "video", "optical")
        if pattern != ALL or home not in seen or home.startswith(tasks):
            yield Model(spec=f"torchvision:{name}", family=home)
        seen.add(home)


def diffusers_models(library: ModuleType, pattern: str) -> Iterator[Model]:
    """The main models: U-nets, transformers, autoencoders, ControlNets; of a pattern all that it fits."""
    names = DIFFUSERS if pattern == ALL else sorted(dir(library))
    for name in _fitting(names, pattern):
        kind: Any = getattr(library, name, None)
        if isinstance(kind, type) and issubclass(kind, library.ModelMixin):
            yield Model(spec=f"diffusers:{name}", family=name)


def _fitting(names: list[str], pattern: str) -> list[str]:
    return [name for name in names if fits(name, pattern)]


def _smallness(name: str) -> tuple[int, int, str]:
    words = (position for position, word in enumerate(_SMALL) if word in name)
    return next(words, len(_SMALL)), len(name), name


def _is_model(kind: Any, base: Any) -> bool:
    model: Any = kind
    return (
        isinstance(kind, type)
        and issubclass(kind, base)
        and model.forward.__name__ != "_forward_unimplemented"  # of nn.Module
    )


CATALOGUES: dict[str, Callable[[ModuleType, str], Iterator[Model]]] = {
    "transformers": transformers_models,
    "timm": timm_models,
    "torchvision": torchvision_models,
    "diffusers": diffusers_models,
}


def list_models(pattern: str) -> list[Model]:
    """List the models of a pattern such as ``transformers:Bert*``, in a prepared process.

    Raises:
        ModelLoadError: the library is not installed or cannot be imported, or nothing fits.
    """
    library, _, names = pattern.partition(":")
    preload(library)
    models = list(CATALOGUES[library](importlib.import_module(library), names))
    if not models:
        raise ModelLoadError(
            f"no model of {library} fits the pattern {names!r}",
            context=f"{pattern}; * and ? match letters, as in a shell",
            hint=f"{library}:* takes all of the library",
        )
    return models


def answer(patterns: list[str], _say: Say) -> dict[str, list[Model]]:
    """Answer a request with the models of each pattern.

    Raises:
        CaptureError: torch is not installed, or too old.
        ModelLoadError: as ``list_models``.
    """
    prepare()
    return {pattern: list_models(pattern) for pattern in patterns}
