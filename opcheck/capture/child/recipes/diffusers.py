"""Inputs of a diffusers model: its forward's names, filled from its configuration by ``diffusers.yaml``."""

from __future__ import annotations

from typing import Any

from torch import nn

from opcheck.capture.child.recipes.engine import Scope, recipe_function
from opcheck.common.errors import InputError


class DiffusersScope(Scope):
    """A model of diffusers, its configuration, and what its recipes may call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__("diffusers", model)
        # Not the first weight's: some classes keep modules in float32.
        self.dtype = getattr(model, "dtype", self.dtype)

    @recipe_function
    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of these settings that is set; of a list its first entry."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, (list, tuple)):
                value = value[0] if value else None
            if value is not None:
                return value
        return default

    @recipe_function
    def side(self, default: int) -> tuple[int, int]:
        """Return the height and the width of a sample."""
        size = self.config.get("sample_size")
        if isinstance(size, (list, tuple)):
            return size[-2], size[-1]
        if isinstance(size, int):
            return size, size
        height, width = self.get("sample_height"), self.get("sample_width")
        return (height, width) if height and width else (default, default)


def derive(model: nn.Module) -> dict[str, Any]:
    """Make keyword arguments for one forward pass with batch size 1.

    Returns:
        ``sample`` 1xCxHxW or ``hidden_states`` in the model's layout, ``timestep`` 1,
        ``encoder_hidden_states`` 1x77xD, and what else the configuration makes forward ask for.

    Raises:
        InputError: forward requires an argument that nothing is known about.
    """
    scope = DiffusersScope(model)
    offered = {*scope["_offered"], *scope.own_arguments()}
    result: dict[str, Any] = {}
    for name, required in scope.parameters.items():
        value = scope[name] if (required or name in offered) and scope.has(name) else None
        if value is not None:
            result[name] = value
        elif required:
            raise InputError(
                f"nothing says what the input {name!r} of {scope.class_name} looks like",
                context=f"{scope.class_name}.forward",
                hint="give every argument: --input sample=1x4x64x64:float32 --input ...",
            )
    return result
