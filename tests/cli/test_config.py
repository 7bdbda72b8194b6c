from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine


def configure(text: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.opcheck]\n{text}\n")


def test_keys_are_the_flags(opcheck: CommandLine) -> None:
    configure(
        """
        torch = "2.10"
        fallback = true
        input = ["1x3", "2x4"]
        config = {layers = 2, name = "x", day = 1979-05-27}
        timeout = 7
        memory = 16
        fail-on = "fallback"
        """
    )
    opcheck("audit", "m.py:Net")
    (request,) = opcheck.requests
    assert (str(request.target.torch), request.target.cpu_fallback, request.time_limit) == ("2.10", True, 7.0)
    assert request.inputs == ("1x3", "2x4")
    assert request.config == {"layers": 2, "name": "x", "day": "1979-05-27"}
    assert opcheck.mac == 16


def test_a_flag_and_a_variable_win_over_a_key(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    configure('torch = "2.10"')
    monkeypatch.setenv("OPCHECK_TORCH", "2.12")
    opcheck("audit", "m.py:Net")
    opcheck("audit", "m.py:Net", "--torch", "2.13")
    assert [str(request.target.torch) for request in opcheck.requests] == ["2.12", "2.13"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('tourch = "2.10"', "unknown key: 'tourch'", "torch"),
        ("torch = 2.10", "wrong value for the key 'torch'", '"2.10"'),
        ('fallback = "yes"', "wrong value for the key 'fallback'", "true or false"),
        ('input = "1x3"', "wrong value for the key 'input'", "a list of texts"),
        ('timeout = "long"', "wrong value for the key 'timeout'", "a number"),
        ('memory = "16 GB"', "wrong value for the key 'memory'", "a whole number"),
        ("fail-on = 3", "wrong value for the key 'fail-on'", 'one of "never"'),
        ("timeout = true", "wrong value for the key 'timeout'", "a number"),
        ("torch = ", "cannot read the configuration", "correct the file"),
    ],
)
def test_a_mistake_names_file_and_key(opcheck: CommandLine, text: str, message: str, hint: str) -> None:
    configure(text)
    result = opcheck("audit", "m.py:Net")
    assert result.code == 2
    what, where, help_line = result.err.splitlines()
    assert what.startswith(message)
    assert "pyproject.toml" in where
    assert hint in help_line


def test_a_value_that_the_flag_refuses_is_refused(opcheck: CommandLine) -> None:
    configure('format = "xml"')
    result = opcheck("audit", "m.py:Net")
    assert result.code == 2
    assert "'xml' is not one of" in result.err


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1\n", "tool = 1\n"])
def test_a_file_without_the_table_is_no_configuration(opcheck: CommandLine, text: str) -> None:
    Path("pyproject.toml").write_text(text)
    assert opcheck("audit", "m.py:Net").code == 0
