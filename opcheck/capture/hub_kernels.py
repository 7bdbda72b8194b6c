"""Kernels of the hub that settings of transformers name: the package kernels downloads them, opcheck does not.

It imports no torch.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from opcheck.common.python_source import source_lines

#: The argument that lets transformers replace layers by its own choice of kernels (modeling_utils.py, set_use_kernels);
#: in a configuration file it has no effect.
USE_KERNELS = "use_kernels"
#: Settings that name the function of attention; configurations of earlier releases have the second.
_ATTENTION = frozenset({"attn_implementation", "_attn_implementation"})
#: ``org/name@revision:function``, and ``paged|org/name`` (transformers 5.23.0, integrations/hub_kernels.py, is_kernel).
_KERNEL = re.compile(r"(?:[^|]*\|)?\s*(?P<name>[^\s/:@|][^/:@|]*/[^/:@|]+)(?:@[^/:]+)?(?::[^/:]+)?")
#: The decorator of a layer that ``use_kernels`` may replace, with the name of its kernel, and the layer's class.
_DECORATED = re.compile(
    r"""^@use_kernel_forward_from_hub\(["'](\w+)["']\)\n(?:@.*\n)*class (\w+)""", re.MULTILINE
)


def kernels(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the repositories of the kernels that settings and their parts name, and ``use_kernels`` if it is set."""
    if settings.get(USE_KERNELS) is True:
        yield USE_KERNELS
    for key, value in settings.items():
        if key in _ATTENTION:
            # A mapping names a kernel for each part of the model.
            for each in value.values() if isinstance(value, dict) else [value]:
                kernel = _KERNEL.fullmatch(each) if isinstance(each, str) else None
                if kernel:
                    yield kernel["name"].strip()
        elif isinstance(value, dict):
            yield from kernels(value)


def remove_kernels(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that name kernels: the model is built with its usual functions."""
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if key in _ATTENTION | {USE_KERNELS} and [*kernels({key: value})]:
            continue
        kept[key] = remove_kernels(value) if isinstance(value, dict) else value
    return kept


def replaces(layers: Collection[str], modules: Iterable[object]) -> bool:
    """Return whether ``use_kernels`` replaces one of the modules.

    The package kernels replaces a module whose class, or a base of it, was decorated with the name of a layer that it
    has a kernel for (kernels 0.17.2, layer/kernelize.py, kernelize).  The decorator does nothing where the package is
    not installed, so that the name is read from the source.

    Args:
        layers: names of the layers that have a kernel for the device.
        modules: those of a model.
    """
    classes = {base for kind in {type(module) for module in modules} for base in kind.__mro__}
    return any(_layer_names(kind.__module__).get(kind.__name__) in layers for kind in classes)


@functools.cache
def _layer_names(module: str) -> dict[str, str]:
    """Return the layer's name that each decorated class of a module has; none where its source is not there."""
    try:
        source = "".join(source_lines(sys.modules[module].__file__ or ""))
    except (KeyError, AttributeError):
        return {}
    return {kind: layer for layer, kind in _DECORATED.findall(source)}
