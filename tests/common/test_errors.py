from __future__ import annotations

import pickle

import pytest

from opcheck.common import errors
from opcheck.common.errors import CaptureError, OpcheckError, OpListError, UnsupportedTorchError, UsageError

_KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OpcheckError)]


def test_three_lines() -> None:
    error = UsageError("what", context="where", hint="do this")
    assert str(error) == "what\n  in: where\n  help: do this"


def test_empty_lines_are_left_out() -> None:
    assert str(UsageError("what")) == "what"


@pytest.mark.parametrize("kind", _KINDS)
def test_every_error_survives_pickling(kind: type[OpcheckError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", context="where", hint="do")))  # noqa: S301
    assert type(error) is kind
    assert str(error) == "what\n  in: where\n  help: do"


@pytest.mark.parametrize("kind", _KINDS)
def test_exit_codes(kind: type[OpcheckError]) -> None:
    could_not_tell = issubclass(kind, (CaptureError, OpListError, UnsupportedTorchError))
    assert kind.exit_code == (3 if could_not_tell else 2)
