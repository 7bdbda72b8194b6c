"""Replaces ``torch.compile``, so that a program that is followed runs operator by operator."""

from collections.abc import Callable
from typing import Any

from opcheck.model.records import Problem


def eager_compile(
    left_out: Callable[[str], None], check_backend: Callable[[object], None] | None = None
) -> Callable[..., Any]:
    """Return a function to replace ``torch.compile`` with: it returns what it is given.

    Args:
        left_out: called with the name ``torch.compile`` at each use.
        check_backend: called with the ``backend`` of each use; may raise.
    """

    def compile_nothing(model: Any = None, **options: Any) -> Any:
        if check_backend is not None:
            check_backend(options.get("backend"))
        left_out("torch.compile")
        return model if model is not None else lambda function: function

    return compile_nothing


def add_left_out(problems: list[Problem], name: str) -> None:
    """Add the problem that states that a compiler of this name was left out; each name once."""
    message = f"{name} was left out: what it would compile ran operator by operator"
    problem = Problem(kind="eager", message=message)
    if problem not in problems:
        problems.append(problem)
