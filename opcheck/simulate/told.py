"""What Python was told of the target in this process: a library may keep it from its import on.

Forks inherit it.  A capture in this process is true only for targets of which the same would have been told.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.versions import Target, Version

FALLBACK_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK"

#: (major, minor, whether the Mac is as new)
_macos: set[tuple[int, int, bool]] = set()
#: what the variable was read as
_fallback: set[str | None] = set()


def is_newer(macos: Version, major: int, minor: int) -> bool:
    """What ``torch.backends.mps.is_macos_or_newer`` says on that Mac."""
    answer = (macos.major, macos.minor) >= (major, minor)
    _macos.add((major, minor, answer))
    return answer


def fits(target: Target) -> bool:
    """Whether the target would have been told of in the same words."""
    macos = (target.macos.major, target.macos.minor)
    return _fallback <= {_value(target)} and all(
        (macos >= (major, minor)) is answer for major, minor, answer in _macos
    )


def set_fallback(target: Target) -> None:
    """Set the variable of this process as it is set for the target."""
    os.environ[FALLBACK_VARIABLE] = _value(target)


def _value(target: Target) -> str:
    return "1" if target.cpu_fallback else "0"


class _Noted(type(os.environ)):  # type: ignore[misc]  # a class without a public name
    """The environment, which keeps what it said of the variable; copying it all reads it, too."""

    def __getitem__(self, key: str) -> str:
        try:
            value: str | None = super().__getitem__(key)
        except KeyError:
            value = None
        if key == FALLBACK_VARIABLE:
            _fallback.add(value)
        if value is None:
            raise KeyError(key)
        return value


@contextlib.contextmanager
def environment_noted() -> Iterator[None]:
    """For the length of the block it is noted that the program reads the variable."""
    before = type(os.environ)
    os.environ.__class__ = _Noted
    try:
        yield
    finally:
        os.environ.__class__ = before
