"""The optimizer of a training step, as ``--optimizer`` names it."""

from __future__ import annotations

import difflib
import inspect
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.common.documents import DocumentError, brief, from_yaml
from opcheck.common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Between arguments: a comma that no bracket closes behind.
_COMMA = re.compile(r",(?![^\[(]*[\])])")


class Chosen(NamedTuple):
    """A class of torch.optim and what it is constructed with."""

    kind: type[torch.optim.Optimizer]
    arguments: dict[str, Any]

    def __str__(self) -> str:
        """``SGD(momentum=0.9)``."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.kind.__name__}({given})" if given else self.kind.__name__

    @property
    def needs_closure(self) -> bool:
        """Whether a step evaluates the model itself, as LBFGS does."""
        closure = inspect.signature(self.kind.step).parameters.get("closure")
        return closure is not None and closure.default is closure.empty

    def made_for(self, parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
        """The optimizer of these parameters; what its constructor raises passes."""
        return self.kind(parameters, **self.arguments)


def parse(text: str) -> Chosen:
    """Read ``adamw``, ``sgd:momentum=0.9,nesterov=true`` or ``adam:betas=[0.9, 0.95]``.

    Raises:
        UsageError: torch.optim has no such class, or the class no such argument.
    """
    name, _, rest = text.partition(":")
    kinds = _kinds()
    kind = kinds.get(name.strip().lower())
    context = f"--optimizer {text}, torch {torch.__version__}"
    if kind is None:
        near = difflib.get_close_matches(name.lower(), kinds) or sorted(kinds)
        raise UsageError(
            f"torch.optim has no optimizer {name!r}",
            context=context,
            hint=("did you mean " if len(near) < len(kinds) else "it has ")
            + ", ".join(kinds[one].__name__ for one in near),
        )
    known = [*inspect.signature(kind).parameters][1:]
    arguments = dict(_argument(part, context) for part in _COMMA.split(rest) if part.strip())
    for argument in arguments:
        if argument not in known:
            raise UsageError(
                f"{kind.__name__} takes no {argument!r}",
                context=context,
                hint=f"it takes {', '.join(known)}",
            )
    return Chosen(kind, arguments)


def _kinds() -> dict[str, type[torch.optim.Optimizer]]:
    base = torch.optim.Optimizer
    return {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    }


def _argument(text: str, context: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(
            f"not an argument: {text.strip()!r}", context=context, hint="write it as NAME=VALUE"
        )
    try:
        return name.strip(), from_yaml(value)
    except DocumentError as error:
        raise UsageError(
            f"not a YAML value: {brief(value)}", context=context, hint="write it as NAME=VALUE"
        ) from error
