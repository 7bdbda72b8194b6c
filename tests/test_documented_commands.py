"""Every command that the documentation, the examples and our own hints show is one that the command line takes."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import click
import pytest
import yaml

from opcheck.cli import opcheck
from opcheck.common.errors import UsageError
from opcheck.common.tool import VERSION

ROOT = Path(__file__).parent.parent
TEXTS = (
    *("README.md", "CONTRIBUTING.md", "action.yml", "op_lists/README.md", "Makefile"),
    *(".pre-commit-hooks.yaml", "reports/README.md"),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples").rglob("*.yml"))),
)
#: A command: alone on its line, behind a prompt or behind a key of a workflow, or all that stands between backquotes.
_COMMAND = re.compile(
    r"""(?:^[ \t]*(?:\$[ ]|-[ ]run:[ ]|entry:[ ]|run:[ ])?|`)
    (?:\w+=\S+[ ])*(?:python[ ]-m[ ]|@\$\(BIN\)/)?opcheck[ ]
    (?P<rest>[a-z][^`\n]*)""",
    re.MULTILINE | re.VERBOSE,
)
_BLOCK = re.compile(r"^```[^`\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What ends a command in a shell, or stands for what is left out.
_END = {"|", "||", "&&", ";", ">", ">>", "<", "...", "}", "$(if", "2>"}
#: Where a sentence about a verb has the place of its arguments.
_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def commands(text: str, *, prose: bool = False) -> Iterator[str]:
    """The commands of a text; of prose those in its code alone."""
    joined = text.replace("\\\n", " ")
    parts = [joined]
    if prose:
        inline = re.findall(r"(`[^`]+`)", _BLOCK.sub("", joined))
        parts = [*_BLOCK.findall(joined), *(" ".join(each.split()) for each in inline)]
    for part in parts:
        for item in _COMMAND.finditer(part):
            yield item["rest"].strip()


def words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    return list(takewhile(lambda word: word not in _END, lexer))


def documented(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return list(commands(text, prose=name.endswith(".md")))


def resolved(arguments: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """The verb that the words name, its context, and what stands behind it."""
    command: click.Command = opcheck
    context = click.Context(command, info_name="opcheck")
    rest = list(arguments)
    while isinstance(command, click.Group) and rest:
        name, result, rest = command.resolve_command(context, rest)
        assert name is not None
        assert result is not None
        settings = result.context_settings
        command, context = result, click.Context(result, info_name=name, parent=context, **settings)
    return command, context, rest


def check(arguments: list[str]) -> None:
    """Parse them as click does, and convert each value that has a type of its own.

    Raises:
        click.UsageError: no such verb or flag, or a value that it does not take.
    """
    command, context, rest = resolved(arguments)
    values, _, order = command.make_parser(context).parse_args(rest)
    for parameter in order:
        value = values.get(parameter.name or "")
        if isinstance(parameter, click.Option) and isinstance(value, str) and value.islower():
            parameter.type.convert(value, parameter, context)


@pytest.mark.parametrize(("name", "command"), [(name, command) for name in TEXTS for command in documented(name)])
def test_a_command_that_is_shown_can_be_given(name: str, command: str) -> None:
    check(words(command))


def test_a_wrong_command_is_found() -> None:
    (command,) = commands("see `opcheck gate --base-line x.yaml`")
    with pytest.raises(click.UsageError, match="--base-line"):
        check(words(command))
    for wrong in ("opcheck guess", "opcheck audit m.py:net --mode trains", "opcheck lists show"):
        (command,) = commands(wrong)
        with pytest.raises((click.UsageError, UsageError)):
            check(words(command))
    assert sum(len(documented(name)) for name in TEXTS) > 80


@cache
def flags_of(verb: str) -> frozenset[str]:
    command, _, rest = resolved([verb])
    assert not rest
    every = [command]
    if isinstance(command, click.Group):
        every += command.commands.values()
    options = [param for each in every for param in each.params if isinstance(param, click.Option)]
    return frozenset(spelling for option in options for spelling in (*option.opts, *option.secondary_opts)) | {
        "--help",
        "--json",
    }


def texts_of_code() -> Iterator[tuple[str, str]]:
    """The texts in our code, with the place of what is put in left open."""
    for path in sorted((ROOT / "opcheck").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
                yield str(path.relative_to(ROOT)), "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(ROOT)), node.value


def test_a_hint_names_verbs_and_flags_that_there_are() -> None:
    verbs = "|".join(sorted(opcheck.list_commands(click.Context(opcheck)), key=len, reverse=True))
    # To the end of the sentence, or to the next command.
    pattern = re.compile(rf"\bopcheck (?P<verb>{verbs})\b(?P<rest>(?:(?!opcheck |[;\n(]|: |, ).)*)")
    seen = 0
    for name, text in texts_of_code():
        for item in pattern.finditer(text):
            # What stands behind a program are its own flags.
            own = item["rest"].partition(".py ")[0] if item["verb"] == "run" else item["rest"]
            asked = {flag for flag in _FLAG.findall(own) if flag != "-m"}
            wrong = asked - flags_of(item["verb"])
            assert not wrong, f"{name}: opcheck {item['verb']} has no {', '.join(sorted(wrong))}"
            seen += bool(asked)
    assert seen > 20


def test_the_baseline_has_the_same_name_everywhere() -> None:
    named = set()
    for name in (*TEXTS, "opcheck/features/gate/verb.py", "opcheck/features/gate/assemble.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        named |= set(re.findall(r"[\w-]*baseline\.(?:ya?ml|json)", text))
    assert named == {"opcheck-baseline.yaml"}


def test_an_example_names_the_action_by_the_line_of_this_version() -> None:
    text = (ROOT / "examples/github/opcheck.yml").read_text(encoding="utf-8")
    assert re.findall(r"OWNER/opcheck@v([\d.]+)", text) == [VERSION.rpartition(".")[0]]


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("examples/")])
def test_a_file_that_a_workflow_runs_exists(name: str) -> None:
    content = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    steps = [step for job in content["jobs"].values() for step in job["steps"]]
    for script in re.findall(r"\btests/[\w/.]+", "\n".join(step.get("run", "") for step in steps)):
        assert (ROOT / script).exists(), script
