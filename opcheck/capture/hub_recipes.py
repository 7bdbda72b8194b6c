"""Public models of the hub whose configurations ship with opcheck: ``hub.yaml``.  Imports no torch.

Each entry holds the values that the configuration files of a repository state, without those that are the defaults of
their class:

- ``task``: the section of the hub that it is listed in.
- ``dtype``: of most of its weights, as safetensors writes it.
- ``config``: config.json, of one model.
- ``index``: model_index.json, of a pipeline; ``parts``: component -> the content of its configuration file.
- ``files``: other files by their names, such as generation_config.json.
"""

from __future__ import annotations

import difflib
import functools
from pathlib import Path
from typing import Any

from opcheck.common.errors import ModelLoadError
from opcheck.common.yaml_text import load_shipped
from opcheck.model.records import Record


class Recipe(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a public repository states of its model."""

    task: str
    dtype: str = "F32"
    config: dict[str, Any] = {}
    index: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    files: dict[str, Any] = {}

    def contents(self) -> dict[str, Any]:
        """Return the content of each configuration file by its path."""
        made = dict(self.files)
        if self.config:
            made["config.json"] = self.config
        if self.index:
            made["model_index.json"] = self.index
        for name, settings in self.parts.items():
            made[f"{name}/{_file(name, settings)}"] = settings
        return made


def _file(component: str, settings: dict[str, Any]) -> str:
    if "scheduler" in component:
        return "scheduler_config.json"
    if "tokenizer" in component:
        return "tokenizer_config.json"
    is_processor = any(key.endswith(("processor_type", "extractor_type")) for key in settings)
    return "preprocessor_config.json" if is_processor else "config.json"


@functools.cache
def recipes() -> dict[str, Recipe]:
    """Read all recipes, by the names of their repositories."""
    import msgspec

    document = load_shipped(Path(__file__).with_name("hub_recipes.yaml"))
    return msgspec.convert(document["models"], dict[str, Recipe])


def recipe(name: str) -> Recipe:
    """Return the recipe of a repository.

    Raises:
        ModelLoadError: there is none.
    """
    known = recipes()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known)
    raise ModelLoadError(
        f"opcheck has no recipe of {name}",
        context=f"model recipe:{name}",
        hint=f"did you mean recipe:{near[0]}" if near else f"audit it from the hub: hf:{name}",
    )


def of_pipeline(class_name: str) -> str:
    """Return the name of the first repository whose pipeline is of that class of diffusers; empty: there is none."""
    names = (
        name for name, each in recipes().items() if each.index.get("_class_name") == class_name
    )
    return next(names, "")


def of_task(task: str) -> str:
    """Return the name of the first repository that is listed for a task of transformers; empty: there is none."""
    return next((name for name, each in recipes().items() if each.task == task and each.config), "")
