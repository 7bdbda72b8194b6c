"""Kernels of the hub that settings of transformers name: the package kernels downloads them, opcheck does not.

It imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: The argument that lets transformers replace layers by its own choice of kernels (modeling_utils.py, set_use_kernels);
#: in a configuration file it has no effect.
USE_KERNELS = "use_kernels"
#: Settings that name the function of attention; configurations of earlier releases have the second.
_ATTENTION = frozenset({"attn_implementation", "_attn_implementation"})
#: ``org/name@revision:function``, and ``paged|org/name`` (transformers 5.23.0, integrations/hub_kernels.py, is_kernel).
_KERNEL = re.compile(r"(?:[^|]*\|)?\s*(?P<name>[^/:@|]+/[^/:@|]+)(?:@[^/:]+)?(?::[^/:]+)?")


def kernels(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the repositories of the kernels that settings and their parts name, and ``use_kernels`` if it is set."""
    if settings.get(USE_KERNELS) is True:
        yield USE_KERNELS
    for key, value in settings.items():
        if key in _ATTENTION:
            # A mapping names one for each part of the model.
            for each in value.values() if isinstance(value, dict) else [value]:
                kernel = _KERNEL.fullmatch(each) if isinstance(each, str) else None
                if kernel:
                    yield kernel["name"].strip()
        elif isinstance(value, dict):
            yield from kernels(value)


def without(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that name kernels: the model is built with its usual functions."""
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if key in _ATTENTION | {USE_KERNELS} and [*kernels({key: value})]:
            continue
        kept[key] = without(value) if isinstance(value, dict) else value
    return kept
