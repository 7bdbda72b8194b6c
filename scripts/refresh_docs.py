"""Run the commands that README.md and docs/ show, and write what they print below them.

    python scripts/refresh_docs.py [--check] [PAGE ...]

A page is a small program. Its fenced blocks are read from top to bottom, in a folder that is empty at first:

* ```` ```console ````: each line that begins with ``$ `` is run by bash; the lines below it are what it prints.
* ```` ```python title="NAME" ````, in any language: the block is written to the file NAME.
* a comment ``<!-- head: N -->`` directly above a block: of each command's output only the first N lines are
  shown, then ``...``.
* ``<!-- not run: REASON -->``: the block is shown as it is.
* ``<!-- slow -->`` above the first heading: the page imports torch, and is run by the tests marked ``slow``.

A command whose exit code is 2 or more is an error, unless the next command is ``echo $?``.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomllib
import yaml

from opcheck.common.files import write_text

ROOT = Path(__file__).parents[1]
PROMPT = "$ "
#: Seconds that one command may take.
TIMEOUT = 300
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[a-z ]+)(?:: (?P<value>[^\n]*?))? -->\n)?"
    r"```(?P<language>\w*)(?: title=\"(?P<title>[^\n\"]+)\")?\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
#: A digest of the op lists or of a file: it changes with each edit of the data, and says nothing here.
_DIGEST = re.compile(r"\b[0-9a-f]{12}\b")
#: How a block that is no program is checked.
_PARSERS: Mapping[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "text": str,
}


class PageError(Exception):
    """A block that cannot be run, or a command that failed."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: its language and title, the comment above it, and where its body stands in the page."""

    language: str
    title: str
    mark: str
    value: str
    body: str
    start: int
    end: int


def pages() -> list[Path]:
    """Return the pages whose commands are run: the README and docs/, without the rules' pages."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(path for path in docs if path.parent.name != "rules")]


def is_slow(text: str) -> bool:
    """Whether the page says that its commands take long."""
    return "<!-- slow -->" in text.partition("\n#")[0].split("\n")


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for match in _BLOCK.finditer(text):
        yield Block(**match.groupdict(""), start=match.start("body"), end=match.end("body"))


def check(block: Block) -> None:
    """Raise PageError for a block that is neither run nor written to a file, nor marked why not, nor data."""
    known = {"", "head", "not run"}
    if block.mark not in known or (block.mark and not block.value):
        message = f"<!-- {block.mark}: {block.value} --> is none of {', '.join(sorted(known))}"
        raise PageError(message)
    if block.title or block.mark == "not run" or block.language == "console":
        return
    if block.language not in _PARSERS:
        message = f"a block of {block.language or 'no language'} is neither run nor marked why not"
        raise PageError(message)
    _PARSERS[block.language](block.body)


def refreshed(text: str) -> str:
    """Return the page with the output of its commands as they print it now.

    Raises:
        PageError: a block is wrong, or a command failed.
    """
    parts = []
    position = 0
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        for block in blocks(text):
            check(block)
            if block.title:
                target = project / block.title
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.body, encoding="utf-8")
            elif block.language == "console" and block.mark != "not run":
                parts += [text[position : block.start], _run_block(block, project)]
                position = block.end
    return "".join([*parts, text[position:]])


def _run_block(block: Block, project: Path) -> str:
    commands = [line for line in block.body.splitlines() if line.startswith(PROMPT)]
    if not block.body.startswith(PROMPT):
        message = f"a console block begins with {PROMPT!r}: {block.body[:80]!r}"
        raise PageError(message)
    head = int(block.value) if block.mark == "head" else None
    lines = []
    code = 0
    for command, following in zip(commands, [*commands[1:], ""], strict=True):
        code, output = _run(command.removeprefix(PROMPT), code, project)
        if code >= 2 and following != f"{PROMPT}echo $?":
            message = f"exit code {code} of: {command}\n{output}"
            raise PageError(message)
        shown = output.rstrip().splitlines()
        if head is not None and len(shown) > head:
            shown = [*shown[:head], "..."]
        if any(line.startswith("```") for line in shown):
            message = f"a fence in the output would end the block: {command}"
            raise PageError(message)
        lines += [command, *shown]
    new = "".join(f"{line.rstrip()}\n" for line in lines)
    return block.body if _DIGEST.sub("", new) == _DIGEST.sub("", block.body) else new


def _run(command: str, code: int, project: Path) -> tuple[int, str]:
    """Run a command by bash, where ``$?`` is ``code``; return its exit code and what it prints."""
    binaries = Path(sys.executable).parent
    environment = {
        **{key: text for key, text in os.environ.items() if key.startswith("OPENBLAS")},
        "PATH": os.pathsep.join([str(binaries), os.environ.get("PATH", os.defpath)]),
        "HOME": str(project.parent),
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        ["bash", "-c", f"(exit {code})\n{command}"],  # noqa: S607 - the shell that readers have
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout.replace(str(project), "/home/you/project")


def main() -> int:
    """Write the pages or compare; return 1 where one differs or fails."""
    parser = argparse.ArgumentParser(description="Run the commands that the documentation shows.")
    parser.add_argument("pages", nargs="*", type=Path, help="these only")
    parser.add_argument("--check", action="store_true", help="write nothing, print a diff")
    options = parser.parse_args()
    failed = False
    for path in options.pages or pages():
        text = path.read_text(encoding="utf-8")
        try:
            new = refreshed(text)
        except PageError as error:
            print(f"{path}: {error}")
            failed = True
            continue
        if new == text:
            continue
        print(f"{path}: differs")
        if options.check:
            failed = True
            sys.stdout.writelines(difflib.unified_diff(text.splitlines(keepends=True), new.splitlines(keepends=True)))
        else:
            write_text(path, new)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
