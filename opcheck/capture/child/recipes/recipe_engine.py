"""Reads the recipes of a library and evaluates them for one model.

A recipe names the arguments of ``forward`` and states what each is made of, as a Python expression over the model's
configuration. The file of a library has three parts:

- ``names``: an argument, or a helper whose name begins with ``_``, and its expression. A value that is no text is a
  constant. An expression may use every other name, and the functions of ``RecipeScope``.
- ``models``: the same for some models, which take precedence. A key lists class names or model types, or patterns
  of them (``*Video*``); an exact name goes before a pattern, an earlier pattern before a later pattern.
- ``settings``: what the configuration of a class leaves open and its model does not build or run without. Each is
  what a published checkpoint of that family has, unless a smaller number does as well.

The files are part of the package, so their expressions are as trustworthy as its code.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch

from opcheck.capture.child.build import values
from opcheck.common.globs import fits
from opcheck.common.yaml_text import load_shipped

Settings = dict[str, Any]
#: A compiled expression, or a constant.
Value = Any

#: Models with settings that the recipes chose -> the names of these settings.
CHOSEN: WeakKeyDictionary[torch.nn.Module, tuple[str, ...]] = WeakKeyDictionary()


class Recipes:
    """The recipes of one library."""

    def __init__(self, library: str) -> None:
        document = load_shipped(Path(__file__).with_name(f"{library}.yaml"))
        self.names = compile_all(document["names"])
        self.settings: dict[str, Settings] = {
            name: own for names, own in document["settings"].items() for name in names.split(", ")
        }
        #: class name or model type -> its own names; patterns are separate, in the order of the file.
        self.exact: dict[str, dict[str, Value]] = {}
        self.patterns: dict[str, dict[str, Value]] = {}
        for keys, own in document["models"].items():
            for key in keys.replace(",", " ").split():
                kept = self.patterns if "*" in key else self.exact
                kept.setdefault(key, {}).update(compile_all(own))

    def value(self, name: str, model_names: tuple[str, ...]) -> Value:
        """Look a name up for a model, given by its class name and its model type.

        Raises:
            KeyError: no recipe has the name.
        """
        for own in self._own(model_names):
            if name in own:
                return own[name]
        return self.names[name]

    def own_arguments(self, model_names: tuple[str, ...]) -> Iterator[str]:
        """Yield the arguments that exactly these models are called with, in addition to the usual ones."""
        for name in model_names:
            yield from (key for key in self.exact.get(name, {}) if not key.startswith("_"))

    def open_settings(self, *class_names: str) -> Settings:
        """Return what the configurations of these classes leave open."""
        open_ = [self.settings.get(name, {}) for name in class_names]
        return copy.deepcopy({key: value for own in open_ for key, value in own.items()})

    def _own(self, model_names: tuple[str, ...]) -> Iterator[dict[str, Value]]:
        yield from (self.exact[name] for name in model_names if name in self.exact)
        for pattern, own in self.patterns.items():
            if any(fits(name, pattern) for name in model_names):
                yield own


@cache
def recipes(library: str) -> Recipes:
    """Read the recipes of a library: ``transformers`` or ``diffusers``."""
    return Recipes(library)


def compile_all(entries: Mapping[str, Any]) -> dict[str, Value]:
    """Compile the values that are texts, as expressions."""
    return {
        name: compile(value, f"recipe {name}", "eval") if isinstance(value, str) else value
        for name, value in entries.items()
    }


def evaluate(expression: CodeType, names: Mapping[str, object]) -> Any:
    """Return the value of an expression, which ships with the package; a name that it lacks is a NameError."""
    return eval(expression, {"__builtins__": {}}, names)  # noqa: S307


class RecipeScope:
    """The names that the recipes of one model may use: those of its recipes, FUNCTIONS and the public methods."""

    def __init__(self, library: str, model: torch.nn.Module, *model_names: str) -> None:
        self.recipes = recipes(library)
        self.model: Any = model
        self.config: Any = model.config
        #: the class name, and what else the recipes may call the model.
        self.model_names = (type(model).__name__, *model_names)
        self.parameters = {
            name: parameter.default is parameter.empty
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        #: the arguments that this model is called with in addition to the usual ones
        self.own_arguments = [name for name in self.recipes.own_arguments(self.model_names) if name in self.parameters]
        floating = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
        self.dtype = next(floating, torch.float32)

    @property
    def class_name(self) -> str:
        """The name of the model's class."""
        return self.model_names[0]

    def __getitem__(self, name: str) -> Any:
        """Evaluate a recipe, or return a function that recipes call.

        Raises:
            KeyError: neither has the name.
        """
        try:
            value = self.recipes.value(name, self.model_names)
        except KeyError:
            if name in FUNCTIONS:
                return FUNCTIONS[name]
            is_method = not name.startswith("_") and inspect.isfunction(getattr(type(self), name, None))
            if is_method or name in ("config", "dtype"):
                return getattr(self, name)
            raise
        if not isinstance(value, CodeType):
            return value
        # eval looks names up by __getitem__ alone.
        return evaluate(value, cast("Mapping[str, object]", self))

    def __contains__(self, name: str) -> bool:
        """Return whether a recipe makes the argument."""
        try:
            self.recipes.value(name, self.model_names)
        except KeyError:
            return False
        return True

    # Functions of recipes.

    def takes(self, *names: str) -> bool:
        """Return whether forward takes any of these arguments."""
        return not self.parameters.keys().isdisjoint(names)

    def floats(self, *shape: int) -> torch.Tensor:
        """Make floats of that shape in the dtype of the weights, as the model's users cast them."""
        return values(shape, torch.float32).to(self.dtype)

    def ints(self, high: int, *shape: int) -> torch.Tensor:
        """Make integers in [0, high) of that shape."""
        return values(shape, torch.int64, high)


#: Functions of recipes that ask nothing of the model.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ones": lambda *shape: torch.ones(shape, dtype=torch.int64),
    "zeros": lambda *shape: torch.zeros(shape, dtype=torch.int64),
    # Masks of everything, and of nothing.
    "true": lambda *shape: torch.ones(shape, dtype=torch.bool),
    "false": lambda *shape: torch.zeros(shape, dtype=torch.bool),
    # float32, whatever the dtype of the weights
    "float_ones": lambda *shape: torch.ones(shape),
    **{name: getattr(torch, name) for name in ("arange", "ones_like", "tensor", "zeros_like")},
    # along the last dimension
    "cat": lambda *tensors: torch.cat(tensors, dim=-1),
    **{each.__name__: each for each in (len, max, min)},
}
