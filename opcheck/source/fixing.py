"""Applies what the rules propose: texts before and after, for each file; nothing is written here.

The files are read again after each round until no rule proposes more, so that a second run changes nothing.
"""

import ast
import codecs
import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.common.grouping import group_values
from opcheck.common.line_diff import unified_diff
from opcheck.common.notebooks import without_magics
from opcheck.common.python_source import encoding, lines_with_endings, split_lines
from opcheck.common.sanitize import patch_name
from opcheck.common.versions import Target
from opcheck.model.records import GroupLocation, Problem
from opcheck.source import engine, source
from opcheck.source import helper as helpers
from opcheck.source.edits import Edit, Fix, apply, fit
from opcheck.source.engine import Filters, Proposal
from opcheck.source.helper import Helper
from opcheck.source.program import walk
from opcheck.source.scan_records import ScanFinding
from opcheck.source.source import FoundFile

#: The largest number of rounds: a fix may uncover another fix, and two fixes may undo each other.
_ROUNDS = 5
#: The rules whose findings depend on whether the code around a line handles MPS.
_BY_BRANCH = {"OC202", "OC204", "OC207", "OC222", "OC223"}


class FileChange(NamedTuple):
    """A file before and after; empty before: a new file."""

    path: Path
    before: str
    after: str
    encoding: str = "utf-8"
    #: how many findings it corrects
    corrected: int = 0

    def contents(self) -> tuple[bytes, bytes]:
        """The contents of the file before and after."""
        before = self.before.encode(self.encoding) if self.before else b""
        return before, self.after.encode(self.encoding)

    def diff(self) -> str:
        """The unified diff."""
        name = patch_name(self.path.as_posix())
        first = name if self.before else "/dev/null"
        # The byte order mark is a part of the first line for patch.
        mark = "\ufeff" * (self.encoding == "utf-8-sig")
        before = _of_patch(mark + self.before) if self.before else []
        lines = unified_diff(before, _of_patch(mark + self.after), first, name)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _of_patch(text: str) -> list[str]:
    """The lines of a text as ``patch`` counts them."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


class Fixed(NamedTuple):
    """The changes of all files."""

    changes: tuple[FileChange, ...]
    #: how many findings they correct, by rule
    fixed: dict[str, int]
    #: how many more unsafe fixes would correct
    unsafe: int
    problems: tuple[Problem, ...]
    #: the findings that no fix corrects, and that the changes of other lines silence
    silenced: tuple[ScanFinding, ...] = ()


def fix(paths: list[str], target: Target, filters: Filters = Filters(), *, unsafe: bool = False) -> Fixed:
    """Correct what the rules find below the paths, as far as a tool can.

    Raises:
        UsageError: as ``scan``.
        OpListError: the data of the rules is damaged.
    """
    fixer = _Fixer(paths, unsafe=unsafe)
    only: set[Path] | None = None
    #: the findings of each file, read first and last
    first, last = (dict[Path | None, list[ScanFinding]]() for _ in range(2))
    for number in range(_ROUNDS):
        reader = engine.read(paths, target, filters, fixer.contents, only)
        findings = last if number else first
        findings.update({path: [] for path in only or ()})
        places = ((Path(each.place.file) if each.place else None, each) for each in reader.found.findings)
        findings.update(group_values(places))
        only = fixer.apply(reader.found.proposals, reader.files)
        if not only:
            break
    fixer.remove_orphans(reader.files)
    return Fixed(
        tuple(sorted(fixer.changes())),
        dict(sorted(fixer.fixed.items())),
        fixer.unsafe or 0,
        tuple(fixer.problems),
        tuple(fixer.silenced(first, last)),
    )


class _Fixer:
    """The changed texts of a scan, over all rounds."""

    def __init__(self, paths: Iterable[str], *, unsafe: bool) -> None:
        self._named = set(map(Path, paths))
        self._with_unsafe = unsafe
        #: the contents after the fixes
        self.contents: dict[Path, bytes] = {}
        #: the texts before them, with their encodings
        self._texts: dict[Path, tuple[str, str]] = {}
        self._plan: helpers.Plan | None = None
        #: by file, the corrected findings: rule and line
        self._corrected: dict[Path, Counter[tuple[str, str]]] = {}
        self._counts: Counter[Path] = Counter()
        self.fixed: Counter[str] = Counter()
        #: how many unsafe fixes the first round left out
        self.unsafe: int | None = None
        self.problems: list[Problem] = []

    def apply(self, proposals: Sequence[Proposal], files: Sequence[FoundFile]) -> set[Path]:
        """Make the fixes of a round; return the changed files."""
        allowed = {"safe", "unsafe"} if self._with_unsafe else {"safe"}
        usable = [each for each in proposals if each.fix.applicability in allowed]
        if self.unsafe is None:
            self.unsafe = len(proposals) - len(usable)
        self._plan = self._plan or helpers.plan(usable, files, self.contents)
        failed = {Path(problem.module) for problem in self.problems}
        changed = set()
        by_file = group_values((each.file.path, each) for each in usable if each.file.path not in failed)
        for path, of_file in by_file.items():
            try:
                before, after, name, count = _change(path, of_file, self._plan, files, self._named)
            except source.UnreadableError as error:
                self.problems.append(error.problem)
                continue
            if before == after:
                continue
            self._texts.setdefault(path, (before, name))
            self.contents[path] = after.encode(name)
            self._counts[path] += count.total()
            self.fixed.update(count)
            lines = ((each.rule, each.text) for each in of_file)
            self._corrected.setdefault(path, Counter()).update(lines)
            changed.add(path)
        return changed

    def remove_orphans(self, files: Sequence[FoundFile]) -> None:
        """Remove the imports that no line uses any more."""
        for path, (before, name) in self._texts.items():
            if path.suffix == ".py" and path.name != "__init__.py":
                after = self.contents[path].decode(name)
                others = (each.path for each in files if each.path != path)
                texts = (_decode_file(each, self.contents) for each in others)
                text = without_orphans(before, after, path.stem, texts)
                self.contents[path] = text.encode(name)

    def silenced(
        self, first: Mapping[Path | None, list[ScanFinding]], last: Mapping[Path | None, list[ScanFinding]]
    ) -> Iterator[ScanFinding]:
        """Yield the findings that changes of other lines silence."""
        for path, after in last.items():
            if path is not None:
                corrected = self._corrected.get(path, Counter())
                lines = _decode_file(path, self.contents).splitlines()
                yield from _find_silenced(first.get(path, []), after, corrected, lines)

    def changes(self) -> list[FileChange]:
        """Return the changed and the new files; two links may lead to one file."""
        by_target = {
            _target(path): FileChange(_target(path), before, self.contents[path].decode(name), name, self._counts[path])
            for path, (before, name) in self._texts.items()
        }
        changes, plan = [*by_target.values()], self._plan
        if plan is not None:
            helpers_of = ((each, plan.by_file.get(each.path)) for each in changes)
            used = {each.path for each, own in helpers_of if own and own.statement in each.after}
            changes += [FileChange(each.path, "", helpers.TEXT) for each in plan.new if used & each.users]
        return changes


def _find_silenced(
    before: Iterable[ScanFinding],
    after: Iterable[ScanFinding],
    corrected: Counter[tuple[str, str]],
    lines: Sequence[str],
) -> Iterator[ScanFinding]:
    """The findings of a file that are gone although their lines are as they were and no fix corrects them."""
    gone = Counter(map(_rule_and_text, before)) - Counter(map(_rule_and_text, after)) - corrected
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        numbers.setdefault(line.strip()[:200], number)
    for finding in before:
        key = _rule_and_text(finding)
        if finding.rule not in _BY_BRANCH or gone[key] <= 0 or key[1] not in numbers:
            continue
        gone[key] -= 1
        if finding.place is not None:
            moved = msgspec.structs.replace(finding.place, line=numbers[key[1]])
            count = finding.locations[0].count
            yield msgspec.structs.replace(
                finding,
                message=f"{finding.message}; a fix of another line hides this",
                locations=(GroupLocation.at(moved, module="", count=count),),
            )


def _rule_and_text(finding: ScanFinding) -> tuple[str, str]:
    return finding.rule, finding.place.text if finding.place else ""


def _decode_file(path: Path, contents: Mapping[Path, bytes]) -> str:
    """The text of a file, to search in it."""
    return helpers.read_content(path, contents).decode("utf-8", "replace")


def _text(content: bytes, file: FoundFile) -> tuple[str, str]:
    """The text of a file and its encoding.

    Raises:
        UnreadableError: the text would not give the same bytes again.
    """
    name = encoding(content) if file.kind == "python" else "utf-8"
    if content.startswith(codecs.BOM_UTF8):
        name = "utf-8-sig"
    try:
        text = content.decode(name)
        if text.encode(name) == content:
            return text, name
    except UnicodeError:  # a notebook in UTF-16
        pass
    raise _refuse_fix(file.path, f"its text does not give the same bytes again in {name}")


def _refuse_fix(path: Path, reason: str) -> source.UnreadableError:
    return source.UnreadableError(source.problem("not_fixed", f"not fixed: {reason}", path.as_posix()))


def _target(path: Path) -> Path:
    """The file that is written: what a link leads to, as seen from the current directory."""
    return Path(os.path.relpath(path.resolve())) if path.is_symlink() else path


def _change(
    path: Path, proposals: list[Proposal], plan: helpers.Plan, files: Sequence[FoundFile], named: Collection[Path]
) -> tuple[str, str, str, Counter[str]]:
    """The text of a file before and after, its encoding, and what was corrected, by rule.

    Raises:
        UnreadableError: the file is a link that the user did not name, or what came out is no program any more.
    """
    file = proposals[0].file
    if path.is_symlink():
        # Its target is fixed as itself, or is outside of the paths that the user named.
        target = path.resolve()
        if any(not each.path.is_symlink() and each.path.resolve() == target for each in files):
            return "", "", "", Counter()
        if path not in named:
            raise _refuse_fix(path, "it is a link to a file outside of the given paths; name that file")
    before, name = _text(proposals[0].content, file)
    helper = plan.by_file.get(path)
    if file.kind == "notebook":
        after, count = _notebook(before, proposals, path, helper)
    else:
        # pip ends a line of a requirements.txt where str.splitlines does.
        is_pip = file.kind == "requirements" and path.suffix != ".toml"
        lines = before.splitlines(keepends=True) if is_pip else lines_with_endings(before)
        edits = ((each.rule, _edits(each.fix, helper)) for each in proposals)
        after, count = _apply_all(lines, [*edits])
        if file.kind == "python":
            _check(after, path)
            if helper is not None and after != before:
                after = helpers.add_import(after, helper)
                _check(after, path)
    return before, after, name, count


def _check(text: str, path: Path) -> None:
    try:
        source.parse(text, path.as_posix())
    except source.UnreadableError as error:
        reason = f"the result would not be valid Python ({error.problem.message})"
        raise _refuse_fix(path, reason) from error


def _edits(fix: Fix, helper: Helper | None) -> tuple[Edit, ...]:
    """The edits of a fix, by the helper if the file has it."""
    if helper is None or not fix.helper_edits:
        return fix.edits
    return tuple(edit._replace(text=edit.text.replace("{helper}", helper.call)) for edit in fix.helper_edits)


def _apply_all(lines: list[str], proposed: list[tuple[str, tuple[Edit, ...]]]) -> tuple[str, Counter[str]]:
    chosen: list[tuple[str, tuple[Edit, ...]]] = []
    taken: defaultdict[int, list[Edit]] = defaultdict(list)
    for rule, edits in proposed:
        fitting = fit(edits, lines, taken)
        chosen += [(rule, fitting)] if fitting else []
        for edit in fitting or ():
            taken[edit.line].append(edit)
    changed, applied = apply(lines, [edits for _, edits in chosen])
    # Those that overlap, or make a line too long together, come in the next round.
    return changed, Counter(chosen[number][0] for number in applied)


# -- imports of autocast that no line uses any more ----

#: The modules whose functions fixes replace.
_AUTOCAST = {"torch.cuda.amp", "torch.cuda.amp.autocast_mode"}


def without_orphans(before: str, after: str, module: str, elsewhere: Iterable[str]) -> str:
    """Leave out the names that the text before used and the text after only imports.

    Only imports on a line of their own at the top level are changed, and none that another file may import from here.

    Args:
        before: the text before the fixes.
        after: the text after them.
        module: the last part of the module's name.
        elsewhere: the other texts of the project.
    """
    if not any(name in after for name in _AUTOCAST):
        return after
    tree, old = source.parse(after, ""), source.parse(before, "")
    unused = _used_names(old) - _used_names(tree)
    lines = lines_with_endings(after)
    edits: list[tuple[Edit, ...]] = []
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or node.module not in _AUTOCAST:
            continue
        kept = [each for each in node.names if (each.asname or each.name) not in unused]
        line = lines[node.lineno - 1].rstrip("\r\n")
        gone = [each.asname or each.name for each in node.names if each not in kept]
        if not gone or line != ast.unparse(node) or _is_imported(gone, module, elsewhere):
            continue
        edit = Edit(node.lineno, 0, node.lineno + 1, 0, "")
        if kept:
            text = ast.unparse(ast.ImportFrom(module=node.module, names=kept, level=0))
            edit = Edit(node.lineno, 0, node.lineno, len(line.encode()), text)
        edits.append((edit,))
    return apply(lines, edits)[0]


def _used_names(tree: ast.AST) -> set[str]:
    """The names that a text uses; a text such as ``"autocast"`` in ``__all__`` counts, too."""
    names = {node.id for node in walk(tree) if isinstance(node, ast.Name)}
    constants = (node.value for node in walk(tree) if isinstance(node, ast.Constant))
    return names | {value for value in constants if isinstance(value, str)}


def _is_imported(names: Iterable[str], module: str, elsewhere: Iterable[str]) -> bool:
    """Return whether another file imports any of the names, all names or unknown names from the module."""
    alternatives = "|".join(map(re.escape, names))
    pattern = re.compile(
        rf"^\s*from\s+[\w.]*\b{re.escape(module)}\s+import\b[^\n]*(?:\b(?:{alternatives})\b|[*(\\])"
        rf"|\b{re.escape(module)}\.(?:{alternatives})\b",
        re.MULTILINE,
    )
    return any(pattern.search(text) for text in elsewhere)


# -- notebooks ---------------------------------------------------------------------------------------


def _notebook(before: str, proposals: list[Proposal], path: Path, helper: Helper | None) -> tuple[str, Counter[str]]:
    """Change the cells of a notebook; the JSON around them stays as it is.

    Raises:
        UnreadableError: the JSON is not laid out as Jupyter and nbformat write it, or a cell would be no program.
    """
    content = json.loads(before)
    dumped = next((layout for layout in _layouts() if _dump(content, layout) == before), None)
    if dumped is None:
        reason = "its JSON is not laid out as Jupyter writes it, and would change as a whole"
        raise _refuse_fix(path, reason)
    count: Counter[str] = Counter()
    cells = [cell for sheet in content.get("worksheets", [content]) for cell in sheet["cells"]]
    importing = _find_importing(cells)
    helper = helper if importing else None
    by_cell: dict[int, list[tuple[str, tuple[Edit, ...]]]] = {}
    for proposal in proposals:
        located = [_in_cell(edit, proposal.places) for edit in _edits(proposal.fix, helper)]
        numbers = {number for number, _ in located}
        if len(numbers) == 1:
            edits = tuple(edit for _, edit in located)
            by_cell.setdefault(numbers.pop(), []).append((proposal.rule, edits))
    is_called = False
    # The first cell that imports torch comes last.
    for number, chosen in sorted({importing: [], **by_cell}.items(), key=lambda item: item[0] == importing):
        if not number:
            continue
        cell = cells[number - 1]
        text = _cell_text(cell)
        visible = [(rule, edits) for rule, edits in chosen if not _covers_magic(edits, text)]
        after, applied = _apply_all(lines_with_endings(text), visible)
        is_called = is_called or (helper is not None and helper.call in after)
        if helper and helper.statement and number == importing and is_called and helper.statement not in after:
            after = helpers.add_below_imports(after, helper, "\n".join(without_magics(after)))
        if after == text:
            continue
        _check("\n".join(without_magics(after)), path)
        key = "source" if "source" in cell else "input"
        cell[key] = after if isinstance(cell[key], str) else after.splitlines(keepends=True)
        count += applied
    return _dump(content, dumped), count


def _cell_text(cell: Mapping[str, Any]) -> str:
    text = cell.get("source", cell.get("input", ""))
    return text if isinstance(text, str) else "".join(text)


def _find_importing(cells: Sequence[Mapping[str, Any]]) -> int:
    """The number of the first cell that imports torch; 0 for none, and where a helper has no place at its head."""
    for number, cell in enumerate(cells, 1):
        text = _cell_text(cell) if cell["cell_type"] == "code" else ""
        try:
            body = source.parse("\n".join(without_magics(text)), "").body if "import torch" in text else ()
        except source.UnreadableError:
            continue
        if body:
            return number if isinstance(body[0], helpers.HEAD) else 0
    return 0


def _covers_magic(edits: Iterable[Edit], text: str) -> bool:
    """Return whether edits replace lines of IPython's own syntax, which the rules do not see."""
    lines = list(zip(split_lines(text), without_magics(text), strict=True))
    return any(
        line != plain for edit in edits if edit[:2] != edit[2:4] for line, plain in lines[edit.line - 1 : edit.end_line]
    )


def _in_cell(edit: Edit, places: Sequence[tuple[str, int]]) -> tuple[int, Edit]:
    """The cell that an edit is in, and the edit with the cell's own lines."""
    # A line that is inserted below the last line of a cell belongs to the cell.
    is_below = edit[:2] == edit[2:4] and edit.column == 0 and edit.line > 1
    name, line = places[edit.line - 2] if is_below else places[edit.line - 1]
    first = line + 1 if is_below else line
    last = first + edit.end_line - edit.line
    return int(name.rpartition("-")[2]), edit._replace(line=first, end_line=last)


def _layouts() -> Iterator[tuple[int | str | None, bool, str, str]]:
    # Git and editors write \r\n on Windows; a newline inside of a text is escaped.
    yield from itertools.product((1, 2, 4, "\t", None), (False, True), ("\n", "\r\n"), ("\n", ""))


def _dump(content: Any, layout: tuple[int | str | None, bool, str, str]) -> str:
    indent, ascii_only, newline, end = layout
    text = json.dumps(content, indent=indent, ensure_ascii=ascii_only) + end
    return text.replace("\n", newline)
