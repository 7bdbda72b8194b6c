"""Which errors the frames of a program handle."""

from __future__ import annotations

import contextlib
import sys

import pytest

from opcheck.tracing.source_locations import caught_names, is_handled


def in_try() -> frozenset[str]:
    try:
        return caught_names(sys._getframe())
    except (TypeError, NotImplementedError):
        return frozenset()


def raise_key_error() -> None:
    raise KeyError


def in_handler() -> frozenset[str]:
    try:
        raise_key_error()
    except KeyError:
        return caught_names(sys._getframe())
    return frozenset({"KeyError"})


def raised_again() -> frozenset[str]:
    try:
        return caught_names(sys._getframe())
    except TypeError as error:
        raise ValueError from error


def called_in_try() -> frozenset[str]:
    try:
        return raised_again()
    except:  # noqa: E722 - what is tested
        return frozenset()


def suppressed() -> frozenset[str]:
    with contextlib.suppress(RuntimeError):
        return caught_names(sys._getframe())
    return frozenset()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (in_try(), {"TypeError", "NotImplementedError"}),
        (in_handler(), set()),
        (raised_again(), set()),
        (called_in_try(), {"BaseException"}),
        (suppressed(), {"RuntimeError"}),
    ],
)
def test_the_types_that_the_frames_handle(names: frozenset[str], expected: set[str]) -> None:
    # What calls this module, pytest, handles errors, too.
    assert names - caught_names(sys._getframe(1)) == expected - caught_names(sys._getframe(1))


def test_a_subclass_is_handled_and_a_base_class_is_not() -> None:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    assert not is_handled(RuntimeError, frame)
    try:
        handled = is_handled(NotImplementedError, sys._getframe())
    except RuntimeError:
        handled = False
    assert handled


def test_the_first_handler_of_a_type_decides() -> None:
    # pytest, which calls this, handles errors, too: each is found without the own statement.
    def raises_it_again() -> tuple[bool, bool]:
        try:
            return is_handled(IndexError, sys._getframe()), is_handled(KeyError, sys._getframe())
        except IndexError:
            raise
        except LookupError:
            return False, False

    outside = is_handled(IndexError, sys._getframe())
    assert raises_it_again() == (outside, True)
