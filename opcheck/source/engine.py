"""Scans files: each is read once; the report has its findings and what was not read."""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.common import globs
from opcheck.common.errors import UsageError
from opcheck.common.python_source import decode, split_lines
from opcheck.common.tool import TOOL
from opcheck.common.versions import Target
from opcheck.model.fingerprint import add_fingerprints
from opcheck.model.ignores import Comment, IgnoreEntry, Ignores, Silencers, of_lines, of_python
from opcheck.model.records import GroupLocation, Problem, SourceLocation
from opcheck.source import scan_requirements, signs, source
from opcheck.source.edits import Fix
from opcheck.source.file_questions import FileQuestions
from opcheck.source.intent import between_processes, for_cuda
from opcheck.source.permits import filter_fixes, keeper
from opcheck.source.program import Program
from opcheck.source.project import Module, Project
from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.rules import BY_ID
from opcheck.source.rules.ignore_comments import UNUSED, WITHOUT_REASON
from opcheck.source.rules.lacking import find_missing_packages
from opcheck.source.scan_records import ScanFinding, ScanReport, count_findings
from opcheck.source.scan_requirements import check_configuration
from opcheck.source.source import FoundFile, Source, UnreadableError
from opcheck.source.words import last
from opcheck.worker import shares

NOT_CHECKED = (
    "Attributes of objects, names of libraries, and code generated at run time were not followed.",
    "Operators were not judged: opcheck audit predicts what they do on MPS.",
    "Nothing was run, and nothing was observed on a Mac.",
)
#: A finding lists at most so many places of use.
_MOST_USES = 10
#: Their errors are warnings where the code is for CUDA by intent.
_ABOUT_CUDA = {"OC201", "OC202", "OC204", "OC205", "OC208", "OC226"}
#: So many parsed files are kept for those that import from them.
_KEPT = 128
_BETWEEN = "the function exchanges tensors with other processes, and no backend of torch.distributed takes those on MPS"
_EXCLUDED = "files that --exclude names"


#: A scan of fewer bytes is over before a copy of the process has started.
_SMALL = 4_000_000
#: So many consecutive files, which import the same others, are one piece of work.
_PIECE = 32


@dataclass
class _FileOutcome:
    """What a file gave."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[ScanFinding] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: int = 0
    silenced: set[IgnoreEntry] = field(default_factory=set)
    #: whether the file was not parsed, because it has no word that a rule names
    unparsed: bool = False
    #: the names that may give other files a device
    carriers: frozenset[str] = frozenset()


class Proposal(NamedTuple):
    """A change that a rule proposes for a finding that counts."""

    file: FoundFile
    rule: str
    fix: Fix
    #: the file as it was read
    content: bytes
    #: in a notebook: the (cell, line) of each line
    places: Sequence[tuple[str, int]] = ()
    #: the line that the finding is about
    text: str = ""


class Filters(NamedTuple):
    """Which files and which findings of a scan count."""

    #: patterns (``tests/*``) of files and directories to leave out
    exclude: Sequence[str] = ()
    #: codes of rules, or their beginnings (``OC21``); none selects all rules
    select: Sequence[str] = ()
    #: entries of the configuration; those of the selected rules count
    ignores: Sequence[IgnoreEntry] = ()


def scan(
    paths: list[str], target: Target, filters: Filters = Filters(), *, silenced: Sequence[ScanFinding] = ()
) -> ScanReport:
    """Scan the files below the paths, as a Mac reads them; add the findings that a fix of another line silences.

    Raises:
        UsageError: a path does not exist, there is nothing to read, or no rule has such a code.
        OpListError: the data of the rules is damaged.
    """
    reader = read(paths, target, filters)
    outcome = reader.found
    if not outcome.counts and not outcome.problems and not reader.skipped[_EXCLUDED]:
        raise UsageError(
            "there is no Python source below these paths",
            context=f"opcheck scan {' '.join(paths)}",
            hint="give files or directories with .py, .ipynb, .yaml, requirements*.txt, pyproject.toml or a Dockerfile",
        )
    order = {file.path.as_posix(): number for number, file in enumerate(reader.files)}
    if silenced:
        outcome.findings += silenced
        outcome.findings.sort(key=lambda finding: _place(finding, order))
    findings = tuple(add_fingerprints(outcome.findings))
    return ScanReport(
        tool=TOOL,
        target={"torch": str(target.torch), "macos": str(target.macos)},
        paths=tuple(paths),
        read=dict(sorted(outcome.counts.items())),
        **count_findings(findings),
        findings=findings,
        ignored=outcome.ignored,
        notes=(*reader.ignores.list_expired(), *reader.ignores.list_unused("OC2")),
        problems=tuple(outcome.problems),
        skipped=dict(sorted(reader.skipped.items())),
        fixable=dict(Counter(proposal.fix.applicability for proposal in outcome.proposals)),
        not_checked=NOT_CHECKED,
    )


def _place(finding: ScanFinding, order: Mapping[str, int]) -> tuple[int, int]:
    where = finding.place
    # A finding in a cell of a notebook has no file of this name, and keeps its place behind the others.
    return (order.get(where.file, len(order)), where.line) if where else (len(order), 0)


def read(
    paths: list[str],
    target: Target,
    filters: Filters,
    contents: Mapping[Path, bytes] | None = None,
    only: Collection[Path] | None = None,
) -> Reader:
    """Read the files below the paths, or of those only some; some may be changed and not written yet.

    Raises:
        UsageError: as ``scan``.
        OpListError: as ``scan``.
    """
    chosen = _select_codes(filters.select)
    entries = [entry for entry in filters.ignores if entry.rule in chosen]
    # The user's own day counts.
    ignores = Ignores(entries, today=date.today())  # noqa: DTZ011
    reader = Reader(target, chosen, ignores, contents or {})
    with _without_collector():
        files = []
        for file in source.find(paths, reader.skipped, reader.found.problems):
            if _is_excluded(file, filters.exclude):
                reader.skipped[_EXCLUDED] += 1
            else:
                files.append(file)
        reader.read_all(files, only)
        reader.forget()
    return reader


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the search for reference cycles.

    Syntax trees have none, and the search takes half of the time of a large file.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _select_codes(select: Sequence[str]) -> frozenset[str]:
    """The codes of the selected rules."""
    for text in select:
        if not any(code.startswith(text.upper()) for code in BY_ID):
            raise UsageError(
                f"scan has no rule {text!r}",
                context="--select",
                hint=f"known: {min(BY_ID)} to {max(BY_ID)}, or their beginning, as OC21; opcheck explain lists them",
            )
    beginnings = tuple(text.upper() for text in select) or ("",)
    return frozenset(code for code in BY_ID if code.startswith(beginnings))


def _is_excluded(file: FoundFile, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches a file or its folders, also below the scanned directory."""
    path, below = file.path, file.path.relative_to(file.root)
    names = {parent.as_posix() for parent in (path, *path.parents, below, *below.parents)}
    return any(globs.fits(name, pattern.rstrip("/")) for pattern in patterns for name in names)


class Reader:
    """Reads the files one by one and collects their findings."""

    def __init__(
        self, target: Target, chosen: frozenset[str], ignores: Ignores, contents: Mapping[Path, bytes]
    ) -> None:
        self.contents = contents
        self.files: tuple[FoundFile, ...] = ()
        self.target = target
        self.chosen = chosen
        self.ignores = ignores
        self.skipped: Counter[str] = Counter()
        #: of the file that is read, and in the end of all files
        self.found = _FileOutcome()
        self._carriers: frozenset[str] = frozenset()
        self._parsed = functools.lru_cache(maxsize=_KEPT)(self._parse)
        self._text = functools.lru_cache(maxsize=_KEPT)(self._content_or_none)
        self.project = Project((), self._module)

    def read_all(self, files: Sequence[FoundFile], only: Collection[Path] | None) -> None:
        """Read the files; a name that one imports from another is followed."""
        self.files = tuple(files)
        self.project = Project((file.path for file in files), self._module, self._text)
        whole = self.found
        chosen = [file for file in files if only is None or file.path in only]
        # When every file is read, the rest of the project shows which names carry a device.
        outcomes = self._share([(file, only is None) for file in chosen])
        carriers: frozenset[str] = frozenset()
        while only is None:
            new = frozenset[str]().union(*(each.carriers for each in outcomes)) - carriers
            carriers |= new
            mention = signs.mention(new) if new else None
            again = [
                number
                for number, each in enumerate(outcomes)
                if mention is not None and each.unparsed and self._holds(chosen[number], mention)
            ]
            if not again:
                break
            self._carriers = carriers
            parsed = self._share([(chosen[number], False) for number in again])
            for number, outcome in zip(again, parsed, strict=True):
                outcomes[number] = outcome
        for each in outcomes:
            for name in ("counts", "findings", "proposals", "problems"):
                getattr(whole, name).__iadd__(getattr(each, name))
            whole.ignored += each.ignored
            whole.silenced |= each.silenced
        self.found, self.ignores.silenced = whole, whole.silenced

    def forget(self) -> None:
        """Free the parsed files; the collector would go through their trees as soon as it is enabled."""
        self._parsed.cache_clear()
        self.project = Project((), self._module)

    def _share(self, files: Sequence[tuple[FoundFile, bool]]) -> list[_FileOutcome]:
        """Read files, in several processes if there are many; the flag of a file allows leaving it unparsed."""
        sizes = (file.path.stat().st_size for file, _ in files if file.path.is_file())
        is_large = any(total > _SMALL for total in itertools.accumulate(sizes))
        count = shares.count_shares() if is_large else 1

        def read(share: int) -> list[tuple[int, _FileOutcome]]:
            numbers = (n for n in range(len(files)) if n // _PIECE % count == share)
            return [(number, self._read_one(*files[number])) for number in numbers]

        outcomes = dict(pair for part in shares.compute(read, count) for pair in part)
        return [outcomes[number] for number in range(len(files))]

    def _read_one(self, file: FoundFile, may_skip: bool) -> _FileOutcome:  # noqa: FBT001  (a part of what is shared)
        self.found = _FileOutcome()
        self.ignores.silenced = self.found.silenced
        self.read(file, may_skip=may_skip)
        return self.found

    def _holds(self, file: FoundFile, mentions: Callable[[str], bool]) -> bool:
        try:
            text = decode(self._content(file.path))
            text = text if text.isascii() else unicodedata.normalize("NFKC", text)
            return mentions(text)
        except (UnreadableError, ValueError):
            return True

    def _content(self, path: Path) -> bytes:
        changed = self.contents.get(path)
        return source.read_bytes(path, path.as_posix()) if changed is None else changed

    def _content_or_none(self, path: Path) -> bytes:
        try:
            return self._content(path)
        except UnreadableError:
            return b""

    def _module(self, path: Path) -> Module | None:
        """A file that another one imports from; None where it cannot be read, or does not speak of CUDA."""
        is_folder = path.name == "__init__.py"
        return self._parsed(path) if is_folder or b"cuda" in self._text(path) else None

    def _reexporter(self, path: Path) -> Module | None:
        """A file that may import names of torch for others; None where it cannot be read, or imports nothing."""
        return self._parsed(path) if b"import" in self._text(path) else None

    def _parse(self, path: Path) -> Module | None:
        try:
            shown = path.as_posix()
            tree = source.parse(source.text(self._content(path), shown), shown)
            program = self._link(Program(tree), path)
        except (UnreadableError, RecursionError, MemoryError):
            return None
        return Module(path, program, self._mac(program, path))

    def _link(self, program: Program, path: Path) -> Program:
        """Let a program follow names that other files of the project import."""
        program.follow = lambda dotted: self.project.origin(dotted, path, self._reexporter)
        return program

    def _mac(self, program: Program, path: Path) -> FileQuestions:
        torch = str(self.target.torch)
        return FileQuestions(program, torch, lambda name: self.project.constants(name, path))

    def read(self, file: FoundFile, *, may_skip: bool = False) -> None:
        """Read a file; with ``may_skip``, a file without the words of any rule is not parsed."""
        shown = file.path.as_posix()
        try:
            content = self._content(file.path)
            if file.kind in {"configuration", "container"}:
                text = source.text(content, shown)
                hits = list(check_configuration(text, file.path))
                lines = text.splitlines()
                self._add(file, content, hits, of_lines(lines, shown), lines)
            elif file.kind == "requirements":
                self._requirements(content, file, shown)
            elif file.kind == "notebook":
                parsed = source.notebook(content, shown, self.found.problems)
                self._program(parsed, file, shown, content)
            else:
                text = source.text(content, shown)
                if may_skip and signs.is_silent(text, self.target):
                    self.found.unparsed = True
                    self.found.counts["lines"] += len(split_lines(text))
                else:
                    self._program(source.python(text, shown), file, shown, content)
        except UnreadableError as error:
            self.found.problems.append(error.problem)
        except (RecursionError, MemoryError):  # an expression of thousands of terms
            self.found.problems.append(source.problem("too_deep", "nested too deeply", shown))
        # The other files are read, and the exit code shows the failure.
        except Exception as error:  # noqa: BLE001
            reason = f"opcheck failed at this file, please report it: {type(error).__name__}: {error}"
            self.found.problems.append(source.problem("failed", reason, shown))
        else:
            self.found.counts[file.kind] += 1

    def _requirements(self, content: bytes, file: FoundFile, shown: str) -> None:
        try:
            text = content.decode("utf-8-sig")
            # The lines of a requirements.txt are those that pip sees (pip 25.3, req/req_file.py, preprocess).
            is_toml = file.path.suffix == ".toml"
            lines = split_lines(text) if is_toml else text.splitlines()
            hits = [(find_missing_packages, hit) for hit in scan_requirements.check(text, lines, is_toml=is_toml)]
        except UnicodeDecodeError as error:
            raise UnreadableError(source.problem("undecodable", str(error), shown)) from error
        except ValueError as error:
            raise UnreadableError(source.problem("syntax_error", str(error), shown)) from error
        self._add(file, content, hits, of_lines(lines, shown), lines)

    def _program(self, parsed: Source, file: FoundFile, shown: str, content: bytes) -> None:
        self.found.counts["lines"] += len(parsed.lines)
        program = self._link(Program(parsed.tree), file.path)
        scanned = Scanned(
            program=program,
            mac=self._mac(program, file.path),
            target=self.target,
            path=file.path,
            root=file.root,
            lines=parsed.lines,
            project=self.project,
        )
        kept = keeper(scanned)
        hits_with_fixes = [
            (rule, replace(hit, fix=kept(hit)) if hit.fix else hit)
            for rule, hit in _hits(scanned, _RuleTable(signs.find_rules(parsed.text, self.target)[1]))
        ]
        hits = list(filter_fixes(hits_with_fixes, scanned))
        self.found.carriers = frozenset(signs.carriers(program, scanned.mac, self._carriers))
        comments = of_python("\n".join(parsed.lines) + "\n", shown) if "opcheck" in parsed.text else ()
        self._add(file, content, hits, comments, parsed.lines, parsed.places, program)
        scanned.forget()

    def _add(
        self,
        file: FoundFile,
        content: bytes,
        hits: list[tuple[ScanRule, Hit]],
        comments: Sequence[Comment],
        lines: list[str],
        places: Sequence[tuple[str, int]] = (),
        program: Program | None = None,
    ) -> None:
        shown = file.path.as_posix()

        def place(line: int, function: str = "") -> GroupLocation:
            name, number = places[line - 1] if places else (shown, line)
            location = SourceLocation(file=name, line=number, function=function, text=quote(line))
            return GroupLocation.at(location, module="", count=1)

        @functools.cache
        def quote(line: int) -> str:
            # Cached, since a line of a million characters may have 100,000 findings.
            return lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""

        pairs: list[tuple[int, ScanFinding]] = []
        silencers = Silencers(comments)
        for (rule, hit), uses in _merge_hits(hits):
            if rule.id not in self.chosen:
                continue
            first, line = getattr(hit.node, "lineno", 1), _line(hit.node)
            last = getattr(hit.node, "end_lineno", None) or first
            if silencers.find(rule.id, first, last) or self.ignores.reason(rule.id, file=shown) is not None:
                self.found.ignored += 1
                continue
            function = program.function(hit.node) if program else ""
            uses_elsewhere = sorted(set(_lines_of(uses, line)))[:_MOST_USES]
            reason = hit.no_fix or rule.no_fix
            finding = ScanFinding(
                fix=hit.fix.applicability if hit.fix else f"none: {reason}",
                rule=rule.id,
                severity=hit.severity or rule.severity,
                message=hit.message,
                hint=hit.hint,
                prints=hit.prints,
                locations=(place(line, function), *map(place, uses_elsewhere)),
                count=max(1, len(uses)),
            )
            pairs.append((line, finding))
            if hit.fix is not None:
                proposal = Proposal(file, rule.id, hit.fix, content, places, quote(line))
                self.found.proposals.append(proposal)
        for number, comment in enumerate(comments):
            for about in self._check_comment(comment, silencers.list_unused(number)):
                located = msgspec.structs.replace(about, locations=(place(comment.line),))
                pairs.append((comment.line, located))
        pairs.sort(key=lambda pair: pair[0])
        self.found.findings += [finding for _, finding in pairs]

    def _check_comment(self, comment: Comment, unused_codes: Iterable[str]) -> Iterator[ScanFinding]:
        """The findings about a comment itself."""
        # A comment for a rule that was not selected, or for a rule of the audit, is not unused.
        unused = [
            code for code in unused_codes if not code.startswith("OC1") and (code in self.chosen or code not in BY_ID)
        ]
        nothing = f"ignores {', '.join(unused) or 'nothing'}, which is not found on this line"
        unexplained = f"ignores {', '.join(comment.codes) or 'nothing'} without a reason"
        reason = "write the reason behind the bracket"
        wrong = (
            (UNUSED, nothing, "remove the comment, or correct the code", unused or not comment.codes),
            (WITHOUT_REASON, unexplained, reason, not comment.reason),
        )
        for rule, message, hint, is_wrong in wrong:
            if is_wrong and rule.id in self.chosen:
                fix = f"none: {rule.no_fix}"
                yield ScanFinding(fix=fix, rule=rule.id, severity=rule.severity, message=message, hint=hint)


def _line(node: ast.AST) -> int:
    """The line of a node; of a call of a method, the line of the method's name, many lines below a long receiver."""
    function = node.func if isinstance(node, ast.Call) else None
    end = function.end_lineno if isinstance(function, ast.Attribute) else None
    return end or int(getattr(node, "lineno", 1))


def _lines_of(uses: Iterable[object], line: int) -> Iterator[int]:
    """The lines of the uses that are not in the line itself."""
    for use in uses:
        first = getattr(use, "lineno", line)
        if not first <= line <= getattr(use, "end_lineno", first):
            yield first


class _RuleTable(dict[tuple[type[ast.AST] | str | None, ...], tuple[ScanRule, ...]]):
    """The rules that check a node, by its kind and, of calls and attributes, the names in it."""

    def __init__(self, rules: Sequence[ScanRule]) -> None:
        self._rules = rules
        self.kinds = frozenset(kind for rule in rules for kind in rule.nodes)

    def __missing__(self, key: tuple[type[ast.AST] | str | None, ...]) -> tuple[ScanRule, ...]:
        kind, *names = key
        self[key] = tuple(
            rule
            for rule in self._rules
            if kind in rule.nodes and (kind not in rule.names or not rule.names[kind].isdisjoint(names))
        )
        return self[key]

    def rules(self, node: ast.AST, scanned: Scanned) -> tuple[ScanRule, ...]:
        """Return the rules that check a node."""
        if isinstance(node, ast.Attribute):
            return self[ast.Attribute, node.attr]
        if isinstance(node, ast.Call):
            full_name = scanned.dotted_name(node.func).rpartition(".")[2]
            keywords = [keyword.arg for keyword in node.keywords]
            return self[(ast.Call, last(node.func), full_name, *keywords)]
        if isinstance(node, ast.Name) and not scanned.program.may_be_imported(node.id):
            return ()
        return self[type(node),]


def _hits(scanned: Scanned, dispatch: _RuleTable) -> Iterator[tuple[ScanRule, Hit]]:
    """The hits of the rules at places that a Mac reaches."""
    answers: dict[object, int] = {}
    kinds = dispatch.kinds
    for node in scanned.program.nodes:
        for rule in dispatch.rules(node, scanned) if type(node) in kinds else ():
            about_cuda = rule.id in _ABOUT_CUDA
            for hit in rule.check(node, scanned):
                # A method of this name is there to move to CUDA.
                if about_cuda and scanned.program.function(node) == "cuda":
                    continue
                places = (hit.node,) if hit.use is None else (hit.use, hit.node)
                severity = hit.severity or rule.severity
                # What fails in a try block is caught there; what takes another way is not.
                tries = severity == "error"
                if not all(scanned.mac.is_reached(place, tries=tries) for place in places):
                    continue
                is_grave = severity == "error" and about_cuda
                changes: dict[str, Any] = {}
                if is_grave and any(for_cuda(each, scanned.program, answers) for each in places):
                    changes["severity"] = "warning"
                if hit.fix and about_cuda and between_processes(hit.node, scanned.program, answers):
                    changes["fix"], changes["no_fix"] = None, _BETWEEN
                yield rule, replace(hit, **changes)


def _merge_hits(hits: Iterable[tuple[ScanRule, Hit]]) -> Iterator[tuple[tuple[ScanRule, Hit], list[object]]]:
    """Join the hits of a rule at a place, with all the places that use it."""
    together: dict[tuple[str, int, str], tuple[tuple[ScanRule, Hit], list[object]]] = {}
    for rule, hit in hits:
        entry = together.setdefault((rule.id, id(hit.node), hit.message), ((rule, hit), []))
        if hit.use is not None:
            entry[1].append(hit.use)
    yield from together.values()
