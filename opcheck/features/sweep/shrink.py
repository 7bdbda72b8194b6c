"""Shrinks the configuration of a model: fewer layers and experts, unchanged widths.

Widths cost nothing, since a large tensor has no memory; a layer costs the time of its calls.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from opcheck.capture.child.recipes.engine import recipes
from opcheck.features.sweep.records import Config, Model

#: Layers that are kept, and more where that takes in each kind of layer that the configuration lists.
LAYERS = 2
#: ... but no more than so many.
MOST_LAYERS = 9
#: Experts that are kept: what the largest common number of groups can be drawn from.
EXPERTS = 16

_DEPTH = re.compile(r"^(num_|n_)?(\w+_)?(layers?|blocks|depth)$")
_EXPERTS = re.compile(r"^(num_|n_)?(\w+_)?experts$")
#: Kinds of layers that all share the weights of the first (Zamba); two are needed to share anything.
_SHARING = ("hybrid",)
#: Not a depth, or a depth that other settings depend on.
_KEPT = re.compile(r"feat_extract|conv|adapter|skip|dense|_per_|start|freq|window|offset|shared")


def small(model: Model, library: ModuleType) -> Config:
    """Return the model's configuration with smaller values; its own if nothing can be made smaller.

    Raises:
        Exception: whatever the library's configuration class raises.
    """
    name = model.spec.partition(":")[2]
    if model.library == "transformers":
        kind = getattr(library, name)
        needed = recipes("transformers").open_settings(kind.config_class.__name__, name)
        return {**_smaller(kind.config_class(**needed)), **model.config}
    if model.library == "diffusers":
        parameters = inspect.signature(getattr(library, name).__init__).parameters.values()
        settings = {parameter.name: parameter.default for parameter in parameters}
        return {**_fewer(settings), **model.config}
    return model.config


def _smaller(config: Any) -> Config:
    reduced: Config = _fewer(vars(config))
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is None or not hasattr(part, "to_diff_dict"):
            continue
        smaller = _smaller(part)
        if smaller:
            reduced[name] = {**part.to_diff_dict(), **smaller}
    return reduced


def _fewer(settings: Mapping[str, Any]) -> Config:
    reduced: Config = {}
    for name, value in settings.items():
        if not isinstance(value, int) or isinstance(value, bool) or _KEPT.search(name):
            continue
        if _EXPERTS.match(name) and value > EXPERTS:
            reduced[name] = EXPERTS
        elif _DEPTH.match(name) and value > LAYERS:
            wanted = max([LAYERS, *map(_covering, _kinds(settings, value))])
            if wanted < value:
                reduced[name] = wanted
                reduced.update(_cut(settings, value, wanted))
    return reduced


def _kinds(settings: Mapping[str, Any], count: int) -> Iterator[list[str]]:
    """Yield the lists that name the kind of each layer: ``layer_types``, ``layers_block_type`` of Zamba ..."""
    for name, value in settings.items():
        if "_type" in name and isinstance(value, list) and len(value) == count:
            yield value


def _covering(kinds: list[str]) -> int:
    """Return how many of the first layers include every kind, and a second layer of kinds that share weights."""
    count = max(kinds.index(kind) + 1 for kind in set(kinds))
    shared = [place for place, kind in enumerate(kinds, 1) if kind in _SHARING]
    return min(max([count, *shared[:2]]), MOST_LAYERS)


def _cut(settings: Mapping[str, Any], before: int, after: int) -> Config:
    """Cut the lists that have an entry for each layer."""
    return {
        name: value[:after]
        for name, value in settings.items()
        if isinstance(value, list) and len(value) == before and not name.startswith("_")
    }
