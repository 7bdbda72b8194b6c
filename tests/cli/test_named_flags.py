"""The flags that texts name exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from opcheck.cli import opcheck

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
#: those of other tools and of examples
OTHERS = frozenset(
    {
        *("--abi", "--dest", "--force-reinstall", "--implementation", "--index-url", "--no-deps"),
        *("--no-build-isolation", "--no-input", "--only-binary", "--platform", "--pre"),
        *("--python-version", "--upgrade"),  # pip
        "--no-as-needed",  # the linker, in an error text of torch
        *(
            "--exclude-newer",
            "--no-annotate",
            "--no-header",
            "--no-project",
            "--python",
            "--system",
            "--torch-backend",
        ),  # uv
        *("--list", "--multiprocessing-fork", "--strict-markers"),  # softwareupdate, Python, pytest
        *("--log", "--train"),  # gh, scripts/bench_capture.py
        *("--json", "--no-shader"),  # a short form, a program's
        *("--epochs", "--flag", "--mps"),  # any flag, any program's
    }
)


def _flags(command: click.Command) -> set[str]:
    own = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            verb = command.get_command(context, name)
            assert verb is not None
            own |= _flags(verb)
    return own


def _texts() -> Iterator[str]:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        yield page.read_text(encoding="utf-8")
    for data in (
        path for kind in ("yaml", "toml", "json", "txt", "template") for path in ROOT.glob(f"opcheck/**/*.{kind}")
    ):
        yield data.read_text(encoding="utf-8")
    for module in (ROOT / "opcheck").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_each_flag_that_a_message_a_help_text_or_a_page_names_exists() -> None:
    named = {flag for text in _texts() for flag in FLAG.findall(text)}
    assert named - _flags(opcheck) - {"--help"} == OTHERS
