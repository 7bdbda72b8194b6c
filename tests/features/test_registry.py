"""A verb is a folder: what finds the features, tried with a verb that lies in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.features import GROUPS, features

ROOT = Path(__file__).parents[2]

DECLARED = """
{
  "group": "Look up",
  "help": "Greet a Mac.",
  "examples": {"opcheck toy M4": "one chip"},
  "documents": {"toy": "opcheck.features.toy.verb:Greeting"}
}
"""
VERB = """
from typing import Annotated

import click

from opcheck.cli.options import OutputOptions, flag, verb
from opcheck.model.records import Record
from opcheck.render.document import Heading


class Greeting(Record, frozen=True, kw_only=True):
    schema: str = "opcheck-toy/1"
    chip: str


@verb("toy")
@click.argument("chip")
def command(
    *, chip: str, loud: Annotated[bool, flag("Shout.")] = False, output: OutputOptions
) -> int:
    name = chip.upper() if loud else chip
    output.deliver(Greeting(chip=name), lambda greeting: [Heading(f"Hello, {greeting.chip}", 1)])
    return 0
"""
START = """
import sys
import opcheck.features
opcheck.features.__path__.append(sys.argv.pop(1))
from opcheck.cli import main
main()
"""
MENU = """
import sys
import opcheck.features
opcheck.features.__path__.append(sys.argv[1])
print(opcheck.features.menu())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    (folder / "toy").mkdir()
    (folder / "toy" / "__init__.py").touch()
    (folder / "toy" / "feature.json").write_text(DECLARED)
    (folder / "toy" / "verb.py").write_text(VERB)
    return folder


def run(folder: Path, *args: str, program: str = START, **variables: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", program, str(folder), *args],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(["", str(ROOT)])[1:]} | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout


def test_the_help_shows_it_in_its_group(folder: Path) -> None:
    text = run(folder, "--help")
    assert text.index("Look up:") < text.index("toy ") < text.index("Audit a model")
    assert "Greet a Mac." in text


def test_its_own_help_begins_with_its_examples(folder: Path) -> None:
    text = run(folder, "toy", "--help")
    assert text.index("opcheck toy M4  # one chip") < text.index("--loud")


def test_it_answers_in_every_format(folder: Path) -> None:
    assert "Hello, M4" in run(folder, "toy", "m4", "--loud")
    assert '"chip": "m4"' in run(folder, "toy", "m4", "-f", "json")


def test_its_document_has_a_schema(folder: Path) -> None:
    assert '"chip"' in run(folder, "explain", "schema", "toy")


def test_shells_complete_it(folder: Path) -> None:
    asked = {"_OPCHECK_COMPLETE": "bash_complete", "COMP_WORDS": "opcheck to", "COMP_CWORD": "1"}
    assert "toy" in run(folder, **asked)


def test_the_menu_of_the_documentation_has_it(folder: Path) -> None:
    assert "{'toy': 'how-to/toy.md'}" in run(folder, program=MENU)


def test_every_group_has_verbs_and_every_verb_a_group() -> None:
    assert {each.group for each in features().values()} == set(GROUPS)
