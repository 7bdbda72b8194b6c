"""Applies what the rules propose: texts before and after, for each file; nothing is written here.

The files are read again after each round until no rule proposes more, so that a second run changes nothing.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.common.versions import Target
from opcheck.model.ignores import Entry
from opcheck.model.records import Problem
from opcheck.source import helper as helpers
from opcheck.source import source
from opcheck.source.edits import Edit, Fix, apply
from opcheck.source.engine import Proposal, read_proposals
from opcheck.source.helper import Helper

#: A fix may uncover another one; so many rounds are enough, and end where fixes undo each other.
_ROUNDS = 5


class Change(NamedTuple):
    """A file before and after; empty before: a new file."""

    path: Path
    before: str
    after: str

    def diff(self) -> str:
        """The unified diff."""
        name = self.path.as_posix()
        first = name if self.before else "/dev/null"
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), first, name
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


class Fixed(NamedTuple):
    """The changes of all files."""

    changes: tuple[Change, ...]
    #: how many findings they correct, by rule
    fixed: dict[str, int]
    #: how many more unsafe fixes would correct
    unsafe: int
    problems: tuple[Problem, ...]


def fix(
    paths: list[str],
    target: Target,
    *,
    unsafe: bool = False,
    exclude: Sequence[str] = (),
    select: Sequence[str] = (),
    ignores: Sequence[Entry] = (),
    today: date | None = None,
) -> Fixed:
    """Correct what the rules find below the paths, as far as a tool can; the arguments are those of ``scan``.

    Raises:
        UsageError: as ``scan``.
        OpListError: the data of the rules is damaged.
    """
    contents: dict[Path, bytes] = {}
    texts: dict[Path, str] = {}
    fixed: Counter[str] = Counter()
    problems: list[Problem] = []
    left_unsafe = 0
    failed: set[Path] = set()
    plan: helpers.Plan | None = None
    only: set[Path] | None = None
    for number in range(_ROUNDS):
        files, proposals = read_proposals(
            paths,
            target,
            exclude=exclude,
            select=select,
            ignores=ignores,
            today=today,
            contents=contents,
            only=only,
        )
        if not number:
            left_unsafe = sum(each.fix.applicability == "unsafe" for each in proposals) * (
                not unsafe
            )
        usable = [each for each in proposals if unsafe or each.fix.applicability == "safe"]
        plan = plan or helpers.plan(usable, files, contents)
        only = set()
        for path, of_file in _by_file(usable).items():
            if path in failed:
                continue
            try:
                before, after, count = _change(path, of_file, plan, contents)
            except source.UnreadableError as error:
                failed.add(path)
                problems.append(error.problem)
                continue
            if before == after:
                continue
            texts.setdefault(path, before)
            contents[path] = after.encode(_encoding(path, contents))
            only.add(path)
            fixed.update(count)
        if not only:
            break
    changes = [Change(path, before, _text(contents[path])) for path, before in texts.items()]
    used = {
        path for path in texts if plan is not None and plan.uses_new(path, _text(contents[path]))
    }
    new = plan.new if plan else ()
    changes += [Change(each.path, "", helpers.TEXT) for each in new if used & each.users]
    return Fixed(tuple(sorted(changes)), dict(sorted(fixed.items())), left_unsafe, tuple(problems))


def _by_file(proposals: Iterable[Proposal]) -> dict[Path, list[Proposal]]:
    by_file: dict[Path, list[Proposal]] = {}
    for proposal in proposals:
        by_file.setdefault(proposal.file.path, []).append(proposal)
    return by_file


def _encoding(path: Path, contents: Mapping[Path, bytes]) -> str:
    content = contents.get(path)
    return "utf-8-sig" if (content or path.read_bytes()).startswith(b"\xef\xbb\xbf") else "utf-8"


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig")


def _change(
    path: Path, proposals: list[Proposal], plan: helpers.Plan, contents: Mapping[Path, bytes]
) -> tuple[str, str, Counter[str]]:
    """The text of a file before and after, and what was corrected, by rule.

    Raises:
        UnreadableError: the file is not in UTF-8, or what came out is no program any more.
    """
    shown = path.as_posix()
    try:
        before = _text(contents[path] if path in contents else path.read_bytes())
    except (UnicodeDecodeError, OSError) as error:
        message = f"not fixed: it cannot be read as UTF-8 ({error})"
        raise source.UnreadableError(source.problem("not_fixed", message, shown)) from error
    file = proposals[0].file
    if file.kind == "notebook":
        after, count = _notebook(before, proposals, shown)
    else:
        helper = plan.helper(path)
        chosen = [(each.rule, _edits(each.fix, helper)) for each in proposals]
        lines = _split(before)
        changed, count = _applied(lines, chosen)
        after = "".join(changed)
        if helper is not None and file.kind == "python" and after != before:
            after = helpers.imported(before, after, helper)
    if file.kind == "python":
        _check(after, shown)
    return before, after, count


def _check(text: str, shown: str) -> None:
    try:
        source.parse(text, shown)
    except source.UnreadableError as error:
        message = f"not fixed: the result would be no program ({error.problem.message})"
        raise source.UnreadableError(source.problem("not_fixed", message, shown)) from error


def _edits(fix: Fix, helper: Helper | None) -> tuple[Edit, ...]:
    """The edits of a fix, by the helper where there is one."""
    if helper is None or not fix.helper_edits:
        return fix.edits
    return tuple(
        edit._replace(text=edit.text.replace("{helper}", helper.call)) for edit in fix.helper_edits
    )


def _applied(
    lines: list[str], chosen: list[tuple[str, tuple[Edit, ...]]]
) -> tuple[list[str], Counter[str]]:
    changed, applied = apply(lines, [edits for _, edits in chosen])
    # Those that overlap come in the next round.
    return changed, Counter(rule for rule, _ in chosen[:applied])


def _split(text: str) -> list[str]:
    """The lines of a program with their newlines, as Python counts them."""
    lines: list[str] = []
    for line in text.split("\n"):
        parts = line.split("\r")
        # A carriage return before a newline belongs to it; one that stands alone ends a line itself.
        *ended, final = parts
        if len(parts) > 1 and not final:
            ended, final = ended[:-1], f"{ended[-1]}\r"
        lines += [f"{part}\r" for part in ended]
        lines.append(f"{final}\n")
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


# -- notebooks ---------------------------------------------------------------------------------------


def _notebook(before: str, proposals: list[Proposal], shown: str) -> tuple[str, Counter[str]]:
    """Change the cells of a notebook; the JSON around them stays as it is.

    Raises:
        UnreadableError: the JSON is not laid out as Jupyter and nbformat write it.
    """
    content = json.loads(before)
    dumped = next((layout for layout in _layouts() if _dump(content, *layout) == before), None)
    if dumped is None:
        message = (
            "not fixed: its JSON is not laid out as Jupyter writes it, and would change as a whole"
        )
        raise source.UnreadableError(source.problem("not_fixed", message, shown))
    count: Counter[str] = Counter()
    cells = [cell for sheet in content.get("worksheets", [content]) for cell in sheet["cells"]]
    by_cell: dict[int, list[tuple[str, tuple[Edit, ...]]]] = {}
    for proposal in proposals:
        located = [_in_cell(edit, proposal.places) for edit in proposal.fix.edits]
        numbers = {number for number, _ in located}
        if len(numbers) == 1:
            edits = tuple(edit for _, edit in located)
            by_cell.setdefault(numbers.pop(), []).append((proposal.rule, edits))
    for number, chosen in by_cell.items():
        cell = cells[number - 1]
        key = "source" if "source" in cell else "input"
        text = cell[key] if isinstance(cell[key], str) else "".join(cell[key])
        changed, applied = _applied(_split(text), chosen)
        after = "".join(changed)
        # The last line of a cell has no newline.
        after = after[:-1] if after.endswith("\n") and not text.endswith("\n") else after
        cell[key] = after if isinstance(cell[key], str) else after.splitlines(keepends=True)
        count += applied
    return _dump(content, *dumped), count


def _in_cell(edit: Edit, places: Sequence[tuple[str, int]]) -> tuple[int, Edit]:
    """The cell that an edit is in, and the edit with the cell's own lines."""
    # A line that is inserted below the last one of a cell belongs to it.
    is_below = edit[:2] == edit[2:4] and edit.column == 0 and edit.line > 1
    name, line = places[edit.line - 2] if is_below else places[edit.line - 1]
    first = line + 1 if is_below else line
    last = first + edit.end_line - edit.line
    return int(name.rpartition("-")[2]), edit._replace(line=first, end_line=last)


def _layouts() -> Iterator[tuple[int | None, bool, str]]:
    for indent in (1, 2, 4, None):
        for ascii_only in (False, True):
            for end in ("\n", ""):
                yield indent, ascii_only, end


def _dump(content: Any, indent: int | None, ascii_only: bool, end: str) -> str:  # noqa: FBT001  (a layout is a tuple)
    return json.dumps(content, indent=indent, ensure_ascii=ascii_only) + end
