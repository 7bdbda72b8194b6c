"""Remembers the results of methods by their arguments, as long as the object lives."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

#: what no method returns
_MISSING = object()


def cached_method(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Make a method that computes once for the same positional arguments; ``functools.cache`` would keep the object."""
    name = f"_{method.__name__}_results"

    @functools.wraps(method)
    def cached(self: Owner, *args: Any, **kwargs: Any) -> Result:
        # Three million such calls make the table of all operators: each hashes its arguments once.
        results = vars(self).get(name)
        if results is None:
            results = vars(self)[name] = {}
        key = (args, *kwargs.items()) if kwargs else args
        result = results.get(key, _MISSING)
        if result is _MISSING:
            result = results[key] = method(self, *args, **kwargs)
        return result  # type: ignore[no-any-return]

    return cached  # type: ignore[return-value]  # the arguments are those of the method
