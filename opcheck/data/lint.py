"""Check the curated statements against the registrations and against each other."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opcheck.common.grouping import group_values
from opcheck.common.names import DTYPES
from opcheck.common.versions import MACOS_MAJORS, MACOS_NEWER, Span, Version
from opcheck.common.vocabulary import Effect
from opcheck.data.compile_defects import DEFECTS
from opcheck.data.composites import PYTHON_CALLS, python_body, python_callers
from opcheck.data.conditions import RECOMPUTED, RESULT
from opcheck.data.history import SCHEMA, Entry, expand
from opcheck.data.macs import MACS
from opcheck.data.matching import matches_call
from opcheck.data.registrations import OpLists, data_directory, load
from opcheck.data.statement_files import Written, read_written, refuse
from opcheck.data.statement_model import EVERY_OPERATOR, Arguments, Statement
from opcheck.data.statements import INDEX, fingerprint, read_index
from opcheck.data.strict_yaml import FileProblem, read_entries
from opcheck.data.tables import ListFile
from opcheck.model.records import OpCall, Record, TensorSpec, contiguous_stride

REGRESSIONS = "regressions.yaml"

#: The outcomes, best first; a composite is as good as the operators that it calls.
_OUTCOMES = (
    *(("native", None), ("composite", None), ("fallback", "always")),
    *(("fallback", "env"), ("unsupported", None), ("unknown", None)),
)
_RAN = {0, 2}


class Regression(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of regressions.yaml."""

    op: str
    #: the first release line without it.
    torch: str
    #: the registration values before and from that line on; "absent" where there is no overload.
    before: str
    after: str
    #: what happened, for a user of the operator.
    what: str


def list_regressions(directory: Path) -> tuple[Regression, ...]:
    """Return the entries of the list, in the order of the file.

    Raises:
        OpListError: the list is damaged.
    """
    entries, document = read_entries(directory / REGRESSIONS, "regressions", Regression)
    document.require_sound(directory / REGRESSIONS, "correct the file; opcheck lists lint checks it")
    return tuple(entry for _, entry in entries)


def find_lost(lists: OpLists) -> Iterator[tuple[str, str, str, str]]:
    """Yield (operator, release line, value before, value from then on) wherever an operator got worse.

    Only operators that ran without the variable can lose something.
    """
    lines = [release.line for release in lists.releases]
    for op in sorted(lists.names()):
        for line, later in pairwise(lines):
            before, after = lists.resolve(op, line), lists.resolve(op, later)
            rank = _OUTCOMES.index((before.status, before.kind))
            if rank in _RAN and _OUTCOMES.index((after.status, after.kind)) > rank:
                yield op, later, before.value or "absent", after.value or "absent"


def lint_regressions(lists: OpLists, directory: Path) -> list[FileProblem]:
    """Return the regressions that the list lacks, and the listed regressions that do not exist."""
    entries, document = read_entries(directory / REGRESSIONS, "regressions", Regression)
    real, listed = set(find_lost(lists)), set()
    for index, entry in entries:
        key = (entry.op, entry.torch, entry.before, entry.after)
        if key not in real:
            document.report(("regressions", index), f"{entry.op} lost nothing such in torch {entry.torch}")
        elif key in listed:
            document.report(("regressions", index), f"{entry.op} in torch {entry.torch} is listed twice")
        listed.add(key)
    for op, torch, before, after in sorted(real - listed):
        document.report(("regressions",), f"{op} went from {before} to {after} in torch {torch}: say what happened", 0)
    return document.problems


# -- what a person concluded of each text in the wheels, and of each public report: texts.yaml, reports.yaml --
# A text of op_lists/extracted/texts.json is accounted for by a statement that quotes it, or by an
# entry here that gives the reason why there is none.  What neither accounts for is open.

REASONS = "texts.yaml"
REPORTS = "reports.yaml"
#: The command that reads the texts out of the wheels into the folder, for this review only.
MADE_BY = "python -m scripts.extract_limits"
DIRECTORY = "extracted"
#: The placeholder in a statement's text for a value that C++ inserts.
_ASSERTION = re.compile(r'.* INTERNAL ASSERT FAILED at "[^"]*":[^,]*, please report a bug to PyTorch\. ?')
_VALUE = re.compile(r"\{[^{}]*\}")
#: A shorter piece occurs in any library, and may be an immediate operand instead of a string.
_LONG = 6
#: Messages of many kinds contain a shorter text: only a statement with the same piece accounts for it.
_ENOUGH = 12


#: The first release line with it, and the first without it.
HalfOpen = tuple[str, str | None]
#: Where a text is printed, in the newest release that has it there: file, function, line; and in which releases.
Place = tuple[str | None, str | None, int | None, tuple[HalfOpen, ...]]
#: In place of the overloads that lead to a function: too many to name.
SHARED = "*"


class Extracted(Record, frozen=True, forbid_unknown_fields=True):
    """The texts that MPS sources print, as the wheels contain them."""

    schema: int
    #: the release lines whose wheels were read, in order.
    releases: tuple[str, ...]
    texts: dict[str, tuple[Place, ...]]
    #: by function and release the overloads whose kernels lead to it.
    operators: dict[str, tuple[Entry, ...]]


class PrintedText(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text that several functions print, and those that a reason covers."""

    text: str
    functions: tuple[str | None, ...]


class Reason(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts without a statement, and why there is none."""

    why: str
    #: a text alone: a single function prints it.
    texts: tuple[str | PrintedText, ...]


def list_spanned(spans: Iterable[HalfOpen], releases: Sequence[str]) -> list[str]:
    """Return the release lines in the spans."""
    lines: list[str] = []
    for since, until in spans:
        end = len(releases) if until is None else releases.index(until)
        lines += releases[releases.index(since) : end]
    return lines


TEXTS = ListFile(f"{DIRECTORY}/texts.json", Extracted, made_by=MADE_BY, missing=Extracted(SCHEMA, (), {}, {}))


def fragments(text: str) -> tuple[str, ...]:
    """Return the pieces of a statement's text between the values that C++ inserts.

    Pieces too short to identify a message are left out, unless all of them are short.
    """
    # The macro's own words surround the message (c10/util/Exception.h, TORCH_INTERNAL_ASSERT).
    message = _ASSERTION.sub("", text) or text
    pieces = [piece for piece in _VALUE.split(message) if piece.strip()]
    long = [piece for piece in pieces if len(piece.strip()) >= _LONG]
    return tuple(long or sorted(pieces, key=len)[-1:])


def lint_texts(statements: Iterable[Statement], directory: Path) -> list[FileProblem]:
    """Return the texts that nothing accounts for where they are printed, and the entries that account for nothing."""
    extracted = TEXTS.load(directory)
    entries, document = read_entries(directory / REASONS, "reasons", Reason)
    if not extracted.texts:
        return document.problems
    items = (item for _, entry in entries for item in entry.texts)
    printed = (PrintedText(text=i, functions=(None,)) if isinstance(i, str) else i for i in items)
    reasons = Counter((each.text, function) for each in printed for function in each.functions)
    printed_at = set()
    pieces = [(item, fragments(item.error.text)) for item in statements if item.error is not None]
    for text, places in extracted.texts.items():
        quoting = [item for item, parts in pieces if is_quoted(text, parts)]
        for place in places:
            key = text, place[1] if len(places) > 1 else None
            printed_at.add(key)
            lines = open_lines(place, quoting, extracted)
            if lines and key not in reasons:
                where = f"{text!r} in {place[1]}, torch {', '.join(lines)}"
                document.report(("reasons",), f"open, no statement and no reason: {where}", 0)
    for key, count in sorted(reasons.items(), key=str):
        where = f"{key[0]!r}" + (f" in {key[1]}" if key[1] else "")
        if key not in printed_at:
            document.report(("reasons",), f"is in no wheel, or elsewhere: {where}", 0)
        elif count > 1:
            document.report(("reasons",), f"listed {count} times: {where}", 0)
    return document.problems


def open_lines(place: Place, quoting: Sequence[Statement], extracted: Extracted) -> list[str]:
    """Return the releases that print a text here, and where no statement with the text names any of the operators.

    A release whose registered kernels do not lead to the function is not among them, where those of another do.
    """
    lines = list_spanned(place[3], extracted.releases)
    users = expand(extracted.operators.get(place[1] or "", ()), extracted.releases)
    if not users or SHARED in users.values():
        return [] if quoting else lines

    def is_quoted_in(line: str) -> bool:
        ops = users[line].split()
        return any(item.spans(line) and any(map(item.names, ops)) for item in quoting)

    return [line for line in lines if line in users and not is_quoted_in(line)]


def is_quoted(text: str, pieces: Iterable[str]) -> bool:
    """Return whether a piece of a statement's text is part of this text, or this text part of a piece."""
    own = text.strip()
    if len(own) < _ENOUGH:
        return any(own == piece.strip() for piece in pieces)
    return any(piece in text or own in piece for piece in pieces)


class PublicReport(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issue or pull request, its content in our words, and its statements or the reason for none."""

    address: str
    says: str
    statements: tuple[str, ...] = ()
    why_none: str = ""


def lint_reports(statements: Collection[str], directory: Path) -> list[FileProblem]:
    """Return the problems of the file: an unknown statement, an address twice, neither a statement nor a reason.

    Args:
        statements: the ids of all statements.
        directory: the op lists.
    """
    entries, document = read_entries(directory / REPORTS, "reports", PublicReport)
    seen: set[str] = set()
    for index, report in entries:
        at = ("reports", index)
        if not report.address.startswith("https://") or report.address in seen:
            document.report(at, f"no address, or one twice: {report.address}")
        seen.add(report.address)
        if bool(report.statements) is bool(report.why_none):
            document.report(at, "either statements or why_none")
        for name in (each for each in report.statements if each not in statements):
            document.report(at, f"no statement has the id {name}")
    return document.problems


# -- check the curated statements against the registrations and against each other --

EXCEPTIONS = "exceptions.yaml"

#: Two statements contradict each other if by the first the kernel raises, and by the second it continues.
_STOPS = {"aborts", "raises"}
_GOES_ON = {"falls_back", "narrows", "wrong_result"}


class Excepted(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An accepted problem of the kind ``check``, with the reason for accepting it."""

    #: no_kernel, overlap, contradiction
    check: str
    #: the ids of the statements: a single id for no_kernel, two for the other checks.
    statements: tuple[str, ...]
    #: the operator; empty: every operator that the statements share.
    op: str = ""
    reason: str


class Excusable(NamedTuple):
    """A problem that an exception may excuse."""

    check: str
    statements: tuple[str, ...]
    op: str
    problem: FileProblem


def lint(directory: Path | None = None) -> int:
    """Check the curated data below a directory, and return the number of statements.

    Raises:
        OpListError: there are problems, and the message names all of them; or the registrations are damaged.
    """
    directory = directory or data_directory()
    written, problems = read_written(directory)
    refuse(problems)
    lists = load(directory)
    index = read_index(directory)
    arguments = index.arguments if index is not None else {}
    for entry in written:
        problems += _versions(entry, lists)
        problems += _names(entry, arguments)
        # A statement's span or condition may differ from its own evidence.
        differing = disagreements(entry.statement, lists.versions, arguments)
        problems += [_problem_at(entry, key, message) for key, message in differing]
    problems += _excuse([*_kernels(written, lists), *_pairs(written)], directory)
    problems += lint_regressions(lists, directory)
    problems += lint_texts((entry.statement for entry in written), directory)
    problems += lint_reports({entry.statement.id for entry in written}, directory)
    problems += _index(directory)
    problems += _python_calls(lists, directory)
    refuse(problems)
    MACS.load(directory)
    DEFECTS.load(directory)
    return len(written)


def _problem_at(entry: Written, key: str, message: str) -> FileProblem:
    place = entry.place
    path = f"{place.path}.{key}" if key else place.path
    return FileProblem(place.file, place.line, path, f"{entry.statement.id}: {message}")


def _versions(entry: Written, lists: OpLists) -> Iterator[FileProblem]:
    """Yield the problems of statements that name an unknown release or macOS version."""
    statement = entry.statement
    lines = lists.versions
    for end in ("since", "until"):
        torch, macos = getattr(statement.torch, end), getattr(statement.macos, end)
        if torch is not None and torch not in lines:
            yield _problem_at(entry, f"torch.{end}", f"releases.yaml has no release {torch}")
        if macos is not None and macos.major not in (*MACOS_MAJORS, *MACOS_NEWER):
            yield _problem_at(entry, f"macos.{end}", f"there is no macOS {macos}")
    if not any(line in statement.torch for line in lines):
        yield _problem_at(entry, "torch", "no release of releases.yaml lies in the span")
    named = [("fixed", statement.fixed)]
    for index, evidence in enumerate(statement.evidence):
        named += [(f"evidence.{index}.{key}", getattr(evidence, key)) for key in ("torch", "mended")]
        named += [(f"evidence.{index}.reported", text) for text in evidence.reported]
    for key, text in named:
        if text and _line(text) not in lines:
            yield _problem_at(entry, key, f"releases.yaml has no release {text}")


def _line(text: str) -> Version | None:
    head = text.split(".")
    is_release = len(head) >= 2 and all(part.isdigit() for part in head[:2])
    return Version.parse(text) if is_release else None


def _names(entry: Written, arguments: Mapping[str, Arguments]) -> Iterator[FileProblem]:
    """Yield the problems of statements that name an argument that some operator's schema lacks.

    The schemas come from the compiled index; an operator that the torch of that build lacked is not
    checked.
    """
    statement = entry.statement
    in_condition = statement.parsed.names if statement.parsed else frozenset()
    for name in sorted({*in_condition, *statement.dtypes_of} - {RECOMPUTED, RESULT}):
        key = "condition" if name in in_condition else "dtypes_of"
        lacking = (op for op, known in arguments.items() if name not in known)
        without = [op for op in lacking if _names_operator(statement.ops, op)]
        if EVERY_OPERATOR in statement.ops:
            yield _problem_at(entry, key, f"operators have no argument {name} in common")
        elif without:
            yield _problem_at(entry, key, f"{', '.join(sorted(without))} has no argument {name}")


def _names_operator(ops: tuple[str, ...], op: str) -> bool:
    return op in ops or any(name.endswith("*") and name != EVERY_OPERATOR and op.startswith(name[:-1]) for name in ops)


def _kernels(written: list[Written], lists: OpLists) -> Iterator[Excusable]:
    """Yield the problems of statements on operators without a kernel in a release of the span."""
    names = list(lists.names())
    for entry in written:
        statement = entry.statement
        for op in statement.ops:
            if op == EVERY_OPERATOR:
                continue
            overloads = [n for n in names if n.startswith(op[:-1])] if op.endswith("*") else [op]
            spanned = (release.line for release in lists.releases if release.version in statement.torch)
            without = [line for line in spanned if not any(_has_kernel(name, line, lists) for name in overloads)]
            if without:
                message = f"{op} has no kernel in torch {', '.join(without)}"
                yield Excusable("no_kernel", (statement.id,), op, _problem_at(entry, "ops", message))


_KERNELS = {"error_stub", "missing_stub"}


def _has_kernel(op: str, line: str, lists: OpLists) -> bool:
    """Return whether the Mac runs its own code for an operator: a kernel, an error stub, or a composite."""
    resolution = lists.resolve(op, line)
    if resolution.status in {"native", "composite"} or (resolution.value or "").partition(":")[0] in _KERNELS:
        return True
    return any(lists.registration(op, line, key) for key in ("SparseMPS", "SparseCsrMPS"))


def _pairs(written: list[Written]) -> Iterator[Excusable]:
    """Yield the problems of two statements that repeat or contradict each other on an operator."""
    pairs = ((entry.statement, entry) for entry in written)
    by_condition = group_values(((item.condition, item.when, item.dtypes_of), entry) for item, entry in pairs)
    for alike in by_condition.values():
        for first, second in combinations(alike, 2):
            check = _conflict(first.statement.effect, second.statement.effect)
            if first.statement.on_every_kernel is not second.statement.on_every_kernel:
                continue  # the general one and a special case of it; the worst effect decides
            if check and _overlap(first.statement, second.statement):
                yield from _pair_problems(check, first, second)


def _conflict(first: Effect, second: Effect) -> str:
    if first == second:
        return "overlap"
    effects = {first, second}
    stops_and_goes_on = effects & _STOPS and effects & _GOES_ON
    return "contradiction" if stops_and_goes_on or effects == _STOPS else ""


def _overlap(first: Statement, second: Statement) -> bool:
    of_any = not first.dtypes or not second.dtypes
    return (
        (of_any or not {*first.dtypes}.isdisjoint(second.dtypes))
        and first.torch.overlaps(second.torch)
        and first.macos.overlaps(second.macos)
    )


def _pair_problems(check: str, first: Written, second: Written) -> Iterator[Excusable]:
    statement, counterpart = first.statement, second.statement
    shared = sorted({*statement.ops} & {*counterpart.ops})
    if not shared:
        for own, others in ((statement.ops, counterpart.ops), (counterpart.ops, statement.ops)):
            shared += sorted(op for op in own if op != "*" and _names_operator(others, op))
    verb = "duplicates" if check == "overlap" else "contradicts"
    place, span = f"{first.place.file}:{first.place.line}", statement.torch.shared_with(counterpart.torch)
    lines = f"{span.since or 'the first'} to {span.until or 'the newest'}"
    for op in shared:
        message = f"{verb} {statement.id} ({place}) on {op}, torch {lines}"
        yield Excusable(check, tuple(sorted((statement.id, counterpart.id))), op, _problem_at(second, "", message))


def _excuse(excusable: list[Excusable], directory: Path) -> list[FileProblem]:
    """Return the problems that no exception excuses, and the exceptions that excuse nothing."""
    excepted, document = read_entries(directory / EXCEPTIONS, "exceptions", Excepted)
    used: set[int] = set()
    for problem in excusable:
        about = problem.check, problem.statements
        alike = (each for each in excepted if (each[1].check, tuple(sorted(each[1].statements))) == about)
        excuses = [index for index, rule in alike if rule.op in {"", problem.op}]
        used.update(excuses)
        if not excuses:
            document.problems.append(problem.problem)
    for index, rule in excepted:
        if index not in used:
            document.report(("exceptions", index), f"excuses nothing: {rule.check} of {', '.join(rule.statements)}")
    return document.problems


def _index(directory: Path) -> Iterator[FileProblem]:
    index = read_index(directory)
    if index is None or index.fingerprint != fingerprint(directory):
        message = "not that of the YAML: run python scripts/compile_statements.py"
        yield FileProblem(INDEX, 0, "fingerprint", message)


def _python_calls(lists: OpLists, directory: Path) -> Iterator[FileProblem]:
    """Yield the operators that a Python name calls by the table in a release that lacks them."""
    for name in sorted(python_callers(directory)):
        for release in lists.releases:
            body = python_body(name, release.line, directory)
            called = body.both if body else ()
            operators = lists.operators(release.line)
            for op in (op for op in called if op not in operators):
                message = f"torch {release.line} has no {op}: run python -m scripts.python_calls"
                yield FileProblem(PYTHON_CALLS.name, 0, f"calls.{name}", message)


# -- compare the span, the dtypes and the condition of a statement with its own evidence -----------------------

#: The releases whose library contains a text or a check, as the detail of an entry words them.
_RANGE = re.compile(r"\b(?:present|throws|raises)\b[^;]*?\b(\d+\.\d+)(?:\.\d+)? (?:to|and) (\d+\.\d+)\b")
#: A tensor as a report's call writes it: ``float16[1, 77, 768]``, with ``@cpu`` where it is not on the GPU.
_TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\](?:@(?P<device>\w+))?(?: offset (?P<offset>\d+))?")


def disagreements(
    statement: Statement, lines: Sequence[Version], arguments: Mapping[str, Arguments]
) -> Iterator[tuple[str, str]]:
    """Yield where a statement and its evidence disagree: the key of the statement, and the message.

    Args:
        statement: the statement.
        lines: the release lines that are known, in order.
        arguments: the arguments of each operator's schema.
    """
    if statement.fixed and _end(statement.fixed, lines) != statement.torch.until:
        yield "fixed", f"fixed in {statement.fixed}, but the span ends at {statement.torch.until}"
    for index, entry in enumerate(statement.evidence):
        key = f"evidence.{index}"
        for release in entry.reported:
            if Version.parse(release) not in statement.torch:
                yield f"{key}.reported", f"reported on {release}, outside of the span"
        if entry.mended and _end(entry.mended, lines) != statement.torch.until:
            yield f"{key}.mended", f"mended in {entry.mended}, but the span ends at {statement.torch.until}"
        match = _RANGE.search(entry.detail) if entry.kind == "binary" else None
        if match and not _contains(match[1], match[2], statement.torch, lines):
            yield f"{key}.detail", f"the library shows {match[1]} to {match[2]}, the span is wider"
        if entry.call:
            yield from ((f"{key}.call", text) for text in _call(statement, entry.call, arguments))


def _call(statement: Statement, written: Mapping[str, Any], arguments: Mapping[str, Arguments]) -> Iterator[str]:
    """Yield what is wrong with the reported call: it cannot be read, or the statement does not apply to it."""
    tensors: list[TensorSpec] = []
    values: dict[str, Any] = {}
    for name, value in written.items():
        every = value if isinstance(value, list) else [value]
        texts = [text for text in every if isinstance(text, str)]
        specs = [spec for text in texts if (spec := _tensor(name, text)) is not None]
        if len(specs) == len(every):
            tensors += specs
        elif any("[" in text for text in texts):
            yield f"{name} is no tensor such as float16[2, 3]: {value}"
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    outputs = tuple(spec for spec in tensors if spec.argument == RESULT)
    inputs = tuple(spec for spec in tensors if spec.argument != RESULT)
    op = statement.ops[0]
    call = OpCall(op=op, inputs=inputs, outputs=outputs, arguments=values)
    if matches_call(statement, call, arguments.get(op)) is False:
        yield "the statement does not apply to the reported call"


def _tensor(name: str, text: str) -> TensorSpec | None:
    match = _TENSOR.fullmatch(text)
    if match is None or match["dtype"] not in DTYPES:
        return None
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    spec = TensorSpec(tensor=0, storage=0, dtype=match["dtype"], shape=shape, argument=name)
    offset, device = int(match["offset"] or 0), match["device"] or "mps"
    return replace(spec, stride=contiguous_stride(shape), offset=offset, device=device)


def _end(release: str, lines: Sequence[Version]) -> Version | None:
    """Return where a span ends that a release mends: its line, or the next line for a patch release of 1 and more."""
    line = Version.parse(release)
    if release.count(".") < 2 or release.endswith(".0"):
        return line
    return next((later for later in lines if later > line), None)


def _contains(first: str, last: str, span: Span, lines: Sequence[Version]) -> bool:
    until = next((line for line in lines if line > Version.parse(last)), None)
    starts = span.since is not None and span.since >= Version.parse(first)
    ends = until is None or (span.until is not None and span.until <= until)
    return starts and ends
