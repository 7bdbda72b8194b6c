"""Merge proposed statements into the curated lists: review the change, lint it, and write it."""

import difflib
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.data.lint import lint
from opcheck.data.statement_files import SORTS, read_statements
from opcheck.data.statements import INDEX, INDEX_SCHEMA, Index, dump_index, fingerprint, forget, read_index
from opcheck.data.strict_yaml import read

#: The file that proposals go to, by their sort, until a person files them by area.
FILE = "observed.yaml"
_HEAD = "# {sort} that were observed on a Mac and not yet filed by area.\nschema: 1\n{key}:"


class Merge(NamedTuple):
    """The changes that a proposal makes to the lists."""

    #: file of the lists -> its whole new text
    changes: dict[str, str]
    diff: str
    #: ids of the statements that it adds
    added: tuple[str, ...]


def review(proposal: Path, directory: Path) -> Merge:
    """Read a proposal, and lint the lists with the proposal added.

    Args:
        proposal: a file of the form of op_lists/limitations.
        directory: the op lists.

    Raises:
        UsageError: the file cannot be read, or proposes nothing.
        OpListError: a proposed statement is wrong or contradicts the lists; the error names every problem.
    """
    document = read(proposal, proposal.name)
    value = document.value
    if document.problems or not isinstance(value, dict):
        problems = "\n".join(map(str, document.problems)) or "a mapping is expected"
        message = f"not a proposal: {problems}"
        hint = "opcheck verify --propose FILE writes a proposal; op_lists/README.md explains the fields"
        raise UsageError(message, context=str(proposal), hint=hint)
    key = next((key for key in SORTS if value.get(key)), None)
    if key is None:
        raise UsageError(
            "the file proposes nothing",
            context=str(proposal),
            hint=f"it holds {' or '.join(SORTS)}, with an entry each",
        )
    name = f"{key}/{FILE}"
    old = directory / name
    before = documents.read_text(old) if old.exists() else ""
    after = _join_entries(before, documents.read_text(proposal), key)
    added = tuple(str(entry.get("id")) for entry in value[key] if isinstance(entry, dict))
    index = _lint(directory, name, after)
    diff = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return Merge({name: after, INDEX: index}, "".join(diff), added)


def apply(merge: Merge, directory: Path) -> None:
    """Write the reviewed change.

    Raises:
        UsageError: a file cannot be written.
    """
    for name, text in merge.changes.items():
        write_text(directory / name, text)
    forget()


def _join_entries(before: str, proposal: str, key: str) -> str:
    """Append the proposed entries, with their comments, to the existing text."""
    lines = proposal.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{key}:")) + 1
    end = next((i for i in range(start, len(lines)) if lines[i][:1].isalpha() and ":" in lines[i]), len(lines))
    entry_lines = lines[start:end]
    if any(line.startswith("- ") for line in entry_lines):
        # These files have two spaces before a dash.
        entry_lines = [f"  {line}" if line else line for line in entry_lines]
    entries = "\n".join(entry_lines).strip("\n")
    head = before.rstrip("\n") or _HEAD.format(sort=key.title(), key=key)
    return f"{head}\n{entries}\n"


def _lint(directory: Path, name: str, text: str) -> str:
    """Lint a copy of the lists that has the change, and return the compiled index of that copy."""
    with tempfile.TemporaryDirectory(prefix="opcheck-") as beside:
        copy = Path(beside, "op_lists")
        shutil.copytree(directory, copy)
        (copy / name).write_text(text, encoding="utf-8")
        before = read_index(copy)
        # The YAML does not have the operators' arguments; those of the last compilation remain true.
        arguments, statements = before.arguments if before else {}, read_statements(copy)
        made_of = fingerprint(copy)
        index = Index(schema=INDEX_SCHEMA, fingerprint=made_of, statements=statements, arguments=arguments)
        (copy / INDEX).write_text(dump_index(index), encoding="utf-8")
        lint(copy)
        return dump_index(index)
