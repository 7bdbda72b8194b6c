"""Completion for shells, which click has: it starts in a blink, and knows verbs, flags and their values."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from opcheck.cli import VERBS


def asked(**variables: str) -> str:
    """What a shell is answered."""
    done = subprocess.run(
        [sys.executable, "-m", "opcheck"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def completed(line: str) -> list[str]:
    """The completions of the last word of a line."""
    words = line.split(" ")
    answer = asked(
        COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), _OPCHECK_COMPLETE="bash_complete"
    )
    return [one.partition(",")[2] for one in answer.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_function(shell: str) -> None:
    assert "_OPCHECK_COMPLETE" in asked(_OPCHECK_COMPLETE=f"{shell}_source")


def test_verbs_flags_and_values_are_completed() -> None:
    assert completed("opcheck ") == list(VERBS)
    assert completed("opcheck up") == ["upgrade"]
    assert completed("opcheck upgrade --relea") == ["--releases"]
    assert completed("opcheck scan a.py --fail-on w") == ["warning"]
