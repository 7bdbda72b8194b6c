"""Which models the libraries have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from scripts.sweep.records import Config, Job

#: The smallest members of a timm family, by what their names say; the first that one has.
_SMALL = ("atto", "femto", "pico", "nano", "tiny", "micro", "xxs", "_xs", "xx_small", "mini", "_s")

#: What builds one of the parts that diffusers lists beside its models, or wraps several of them.
_NO_MODELS = ("Multi", "Config", "Backend", "AutoModel", "Mixin", "attention_backend")

#: Settings without which a class of diffusers does not build, from its documentation or its checkpoints.
_NEEDED: dict[str, Config] = {}


def transformers_jobs(library: ModuleType) -> Iterator[Job]:
    """Every public model class that has a configuration of its own and a forward."""
    names = [
        name
        for name, module in library._class_to_module.items()  # noqa: SLF001 - it lists them unimported
        if ".modeling_" in f".{module}" and not name.endswith("PreTrainedModel")
    ]
    for name in sorted(names):
        kind: Any = getattr(library, name, None)
        if _is_model(kind, library.PreTrainedModel) and kind.config_class is not None:
            yield Job(spec=f"transformers:{name}", family=kind.config_class.__name__)


def timm_jobs(library: ModuleType) -> Iterator[Job]:
    """The smallest model of each module of timm, as far as names tell."""
    for module in sorted(library.list_modules()):
        names = library.list_models(module=module)
        if names:
            yield Job(spec=f"timm:{min(names, key=_smallness)}", family=module)


def torchvision_jobs(library: ModuleType) -> Iterator[Job]:
    """One classifier a family, and every model of the other tasks."""
    seen: set[str] = set()
    for name in library.models.list_models():
        home = library.models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        if home not in seen or home.startswith(("detection", "segmentation", "video", "optical")):
            yield Job(spec=f"torchvision:{name}", family=home)
        seen.add(home)


def diffusers_jobs(library: ModuleType) -> Iterator[Job]:
    """Every model class that diffusers names."""
    structure = library.models._import_structure  # noqa: SLF001 - what it would import
    for name in sorted({name for names in structure.values() for name in names}):
        kind = getattr(library, name, None)
        if any(part in name for part in _NO_MODELS) or not _is_model(kind, library.ModelMixin):
            continue
        yield Job(spec=f"diffusers:{name}", family=name, config=_NEEDED.get(name, {}))


def _smallness(name: str) -> tuple[int, int, str]:
    words = (position for position, word in enumerate(_SMALL) if word in name)
    return next(words, len(_SMALL)), len(name), name


def _is_model(kind: Any, base: Any) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, base)
        and kind.forward.__name__ != "_forward_unimplemented"  # of nn.Module
    )


CATALOGUES: dict[str, Callable[[ModuleType], Iterator[Job]]] = {
    "transformers": transformers_jobs,
    "timm": timm_jobs,
    "torchvision": torchvision_jobs,
    "diffusers": diffusers_jobs,
}
