"""Turns the options that records and functions declare into flags (``verb``), and has the parts that verbs share.

Each parameter of a verb's function is either a record of options, whose fields are flags, or a single flag::

    @verb("op", epilog="...")
    @click.argument("query")
    def command(query: str, *, target: Annotated[TargetOptions, only("torch")], output: OutputOptions) -> int:
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_args

import click
import msgspec
from msgspec.structs import replace

from opcheck.cli import streams
from opcheck.cli.helps import WIDTH, Help
from opcheck.common.documents import brief
from opcheck.common.errors import UsageError
from opcheck.common.files import check_writable, write_text
from opcheck.data import targets
from opcheck.data.registrations import VARIABLE, is_unlisted_name, load
from opcheck.features import texts_of
from opcheck.model.options import READER, Action, Declared, Option, find_option, options_of
from opcheck.model.records import Record, Report
from opcheck.render import ANSWERS, FORMATS, format_of, render, write
from opcheck.render.document import Document

_Record = TypeVar("_Record", bound=msgspec.Struct)

#: The value of ``--output`` that means stdout.
STDOUT = ("", "-")

#: How severe a finding is, the worst first, as ``--fail-on`` of the verbs that judge by it.
SEVERITIES = ("error", "warning", "note", "never")

#: The exit code when the answer is unknown, which must never look like success.
COULD_NOT_TELL = 3

#: processes at once
MOST_JOBS = 1024


class Flag(click.Option):
    """The click option that is made from a declared option, with its OPCHECK_* variable."""

    def __init__(self, source: Declared, group: str = "") -> None:
        self.source = source
        #: the name of the record that declares it, for the groups of the help
        self.group = group
        option, default = source.option, source.default
        has_default = default not in (msgspec.NODEFAULT, None, "", (), {})
        kind: dict[str, Any] = {"type": _click_type(source), "multiple": source.repeatable}
        if source.type is bool:
            kind = {"is_flag": True}
            has_default = False
        elif option.bare:
            kind |= {"is_flag": False, "flag_value": option.bare}
        if default not in (msgspec.NODEFAULT, None, (), {}):
            kind["default"] = default
        variable = option.variable or f"OPCHECK_{source.name.replace('-', '_').upper()}"
        super().__init__(
            [source.field, *source.spellings],
            required=default is msgspec.NODEFAULT,
            metavar=option.metavar or _metavar(option.choices),
            help=_help(option),
            envvar=variable if option.configurable else None,
            show_default=option.default_text or has_default,
            # Completion needs no value.
            callback=lambda ctx, _, texts: texts if ctx.resilient_parsing else source.from_texts(texts),
            **kind,
        )

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the flag and its help; of a pair that is off by default, the flag that turns it on."""
        record = super().get_help_record(ctx)
        if record is None or not self.secondary_opts or self.source.default:
            return record
        return ", ".join(self.opts), record[1]

    def make_metavar(self, *context: click.Context, **named: click.Context) -> str:
        """Return the word for the value, with dots where the flag may be given again."""
        metavar = super().make_metavar(*context, **named)  # click 8.1 gives no context
        head, colon, _ = metavar.partition("[:")
        metavar = f"{head}[:...]" if colon else metavar
        return f"{metavar}..." if self.multiple else metavar

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Return the text in brackets, without the range of a number, which an error names."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


#: Columns that a list of choices may take in the flag's column; the help text has longer lists.
_MOST_CHOICES = 20


def _metavar(choices: tuple[str, ...]) -> str | None:
    return "NAME" if len("|".join(choices)) > _MOST_CHOICES else None


def _help(option: Option) -> str:
    # The three dots of the metavar say it.
    text = option.help.removesuffix(" Repeatable.")
    if _metavar(option.choices) is None or option.metavar:
        return text
    # Verb.parse_args reads --json.
    names = ["json (--json)" if name == "json" else name for name in option.choices]
    return f"{', '.join(names)}.  {text}"


if TYPE_CHECKING:
    _ClickChoice = click.Choice[str]
else:  # click 8.1 has no parameter
    _ClickChoice = click.Choice

#: Other names of formats.
_FORMAT_ALIASES = {"md": "markdown", "yml": "yaml", "txt": "text", "htm": "html", "ndjson": "jsonl"}


class Choice(_ClickChoice):
    """A choice that also takes the usual short names of formats."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert as click does, with ``md`` for ``markdown``."""
        meant = _FORMAT_ALIASES.get(str(value).lower(), value)
        return super().convert(meant if meant in self.choices else value, param, ctx)


def _click_type(source: Declared) -> click.ParamType[Any] | None:
    option = source.option
    kind = get_args(source.type)[0] if source.repeatable else source.type
    if option.choices:
        return Choice(option.choices)
    if kind is Path:
        return click.Path(path_type=Path)
    if kind is int:
        return click.IntRange(option.least, option.most)
    if kind is float and (option.above, option.most) != (None, None):
        return click.FloatRange(option.above, option.most, min_open=True)
    return click.FLOAT if kind is float else None


class Take(NamedTuple):
    """Selects the options of a record that a verb takes, and overrides their help or declaration."""

    takes: Callable[[Declared], bool]
    #: by field: another help, or another option
    changes: dict[str, str | Option]


def only(*fields: str, **changes: str | Option) -> Take:
    """Take only these fields; a value replaces the help or the option of its field."""
    names = {*fields, *changes}
    if names & {"torch", "macos"}:
        names.add("newest_known")
    return Take(lambda source: source.field in names, changes)


def but(**changes: str | Option) -> Take:
    """Take all fields, and replace the help or the option of these."""
    return Take(lambda _: True, changes)


class Verb(Help):
    """A click command whose flags may take their defaults from the configuration."""

    def __init__(
        self, *, table: str | None, takes: frozenset[Action], foreign: Iterable[str], **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self._table = table
        self._takes = takes
        self._foreign = frozenset(foreign)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Make click's context with the defaults of the configuration."""
        if self._table is not None:
            from opcheck.cli import config

            own = [param for param in self.params if param.name not in self._foreign]
            note = (lambda _: None) if extra.get("resilient_parsing") else streams.note
            extra["default_map"] = config.defaults(self._table, own, Path.cwd(), takes=self._takes, note=note)
        return super().make_context(info_name, args, parent, terminal_width=streams.columns(WIDTH), **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``--json`` as ``--format=json`` where the verb has that format, and no program's arguments follow."""
        formats = next((flag.type for flag in self.params if flag.name == "format"), None)
        if ctx.allow_interspersed_args and "json" in getattr(formats, "choices", ()):
            args = ["--format=json" if arg == "--json" else arg for arg in args]
        return super().parse_args(ctx, self._with_bare_values(args, ctx.allow_interspersed_args))

    def _with_bare_values(self, args: list[str], interspersed: bool) -> list[str]:
        """Give an option that needs no value its own one where what follows is none of its values."""
        flags = {name: each for each in self.params if isinstance(each, Flag) for name in each.opts}
        args, place = list(args), 0
        while place < len(args) and (interspersed or args[place].startswith("-")):
            flag = flags.get(args[place])
            option = flag.source.option if flag else None
            if args[place] == "--":
                break
            if option and option.bare and not _are_values("".join(args[place + 1 : place + 2]), option):
                args[place] += f"={option.bare}"
            elif flag and not flag.is_flag:
                place += 1
            place += 1
        return args


#: The name of a dtype: a wrong one gets the error of the option, and is no model.
_DTYPE = re.compile(r"(?:u?int|b?float|complex|bool|half|double)\d*")


def _are_values(text: str, option: Option) -> bool:
    """Return whether a word after an option is its value, and not the verb's next argument."""
    values = {*option.choices, *option.values}
    words = text.split(option.separator or None)
    return bool(words) and all(word in values or _DTYPE.fullmatch(word) for word in words)


def verb(
    name: str,
    *,
    parent: click.Group | None = None,
    table: str | None = None,
    takes: frozenset[Action] = READER,
    foreign: Iterable[str] = (),
    **attributes: Any,
) -> Callable[[Callable[..., int]], click.Command]:
    """Return a decorator that makes a command of a function, whose parameters become flags.

    Args:
        name: the verb's, or the subcommand's.
        parent: the group that it is a subcommand of.
        table: the configuration's table with its defaults: empty for ``[tool.opcheck]`` itself, ``scan`` for
            ``[tool.opcheck.scan]``.  None: it has no defaults there.
        takes: the actions of options that the file of a project may set: READER or RUNNER.
        foreign: parameters that take no default from that table.
        attributes: click's; the texts are those of the feature unless they are given.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        records, flags = flags_of(function)

        def call_with_records(**values: Any) -> int:
            select_lists(values)
            judging = []
            for parameter, (record, fields) in records.items():
                values[parameter] = record(**{field: values.pop(field) for field in fields})
                if "newest_known" in fields:
                    judging.append(values[parameter])
            return conclusive(function(**values), *judging)

        arguments = function.__dict__.pop("__click_params__", [])[::-1]
        command = Verb(
            name=name,
            callback=call_with_records,
            params=[*arguments, *flags],
            table=table,
            takes=takes,
            foreign=foreign,
            **(texts_of(str(parent.name), name) if parent else texts_of(name)) | attributes,
        )
        if parent is not None:
            parent.add_command(command)
        return command

    return decorate


#: Parameters that name torch releases.
_RELEASES = ("torch", "what", "old", "new", "before", "after")


def select_lists(values: Mapping[str, Any]) -> None:
    """Choose the op lists of the run by the releases that its parameters name (data/built_lists.py)."""
    named = [values.get(name) for name in _RELEASES]
    texts = [text for each in named for text in (each if isinstance(each, tuple) else [each])]
    unlisted = [*filter(is_unlisted_name, texts)]
    if unlisted or VARIABLE in os.environ:
        from opcheck.data.built_lists import select

        select(*unlisted)


def conclusive(code: int, *records: msgspec.Struct, beyond: str = "") -> int:
    """Return the exit code of an answer: 3 in place of a verdict about a target that the op lists do not cover.

    Args:
        code: what the answer came to on the nearest target that they cover.
        records: the options of the verb, among them the target and whether the nearest one may answer for it.
        beyond: what of another target is newer than the op lists.
    """
    for record in records:
        if code not in {0, 1} or getattr(record, "newest_known", False):
            return code
        if isinstance(record, targets.TargetOptions) and (record.torch or record.macos):
            beyond = beyond or targets.beyond(record.torch, record.macos, load())
    if beyond and code in {0, 1}:
        streams.note(f"could not tell: {beyond} (--newest-known accepts that answer)")
        return COULD_NOT_TELL
    return code


_Records = dict[str, tuple[type[msgspec.Struct], tuple[str, ...]]]


def flags_of(function: Callable[..., Any]) -> tuple[_Records, list[Flag]]:
    """Return a function's parameters that are records, with the fields that are set, and all its flags."""
    records: _Records = {}
    flags: list[Flag] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, *notes = get_args(parameter.annotation) or (parameter.annotation,)
        empty = parameter.default is parameter.empty
        default = msgspec.NODEFAULT if empty else parameter.default
        own = find_option(name, parameter.annotation, default)
        if own is not None:
            flags.append(Flag(own))
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            take = next((note for note in notes if isinstance(note, Take)), but())
            taken = [source for source in options_of(kind) if take.takes(source)]
            records[name] = (kind, tuple(source.field for source in taken))
            for source in taken:
                change = take.changes.get(source.field, source.option)
                option = replace(source.option, help=change) if isinstance(change, str) else change
                flags.append(Flag(source._replace(option=option), kind.__name__))
    return records, flags


def flag(text: str, name: str = "", **attributes: Any) -> Option:
    """Declare an option of the command line alone, without a variable and a key."""
    return Option(text, name, configurable=False, **attributes)


def jobs(text: str) -> Option:
    """Declare ``--jobs N``."""
    return Option(text, short="-j", metavar="N", least=1, most=MOST_JOBS)


def formats(names: Iterable[str]) -> Option:
    """Declare ``--format`` with these names; the first is the default."""
    names = tuple(names)
    return Option(f"[default: {names[0]}]", short="-f", choices=names)


def reuse(text: str) -> Option:
    """Declare ``--cache`` and ``--no-cache``; the variable OPCHECK_CACHE names the folder of wheels."""
    return Option(text, negative="--no-cache", variable="OPCHECK_REUSE")


DTYPE = Option("Dtype of the tensors.", metavar="DTYPE")
DEVICE = Option("mps, cuda, cuda:1, xpu, cpu ...", metavar="DEVICE", values=("cpu", "cuda", "mps", "xpu"))
COLOR = Option("When to colour the text.", choices=("auto", "always", "never"))


#: The capture options of a verb that audits a model on the way to its own answer.
CAPTURE = Take(lambda source: getattr(source.option, "scope", "") != "audit", {})


def list_failing(level: str) -> tuple[str, ...]:
    """Return the severities that ``--fail-on`` counts at this level."""
    return () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]


class ProgressOptions(Record, frozen=True, kw_only=True):
    """Options for the progress and the amount of text."""

    quiet: Annotated[bool, Option("Show no progress.", short="-q")] = False
    verbose: Annotated[bool, Option("Show progress, the model's output and the full text.", short="-v")] = False

    def shown(self, *, redirected: bool = False) -> contextlib.AbstractContextManager[Callable[[str], None] | None]:
        """Return the context whose value takes the messages of a long run (``streams.progress``)."""
        return streams.progress(quiet=self.quiet, verbose=self.verbose, redirected=redirected)


VERBOSE = Option("Show the full text.", short="-v")


class SectionOptions(Record, frozen=True, kw_only=True):
    """Options that add sections to the short text of an answer."""

    releases: Annotated[bool, flag("Add a table of all releases.")] = False
    calls: Annotated[bool, flag("Add the other overloads, or the operators that a module calls.")] = False
    limits: Annotated[bool, flag("Add all limits and advisories, with links.")] = False
    evidence: Annotated[bool, flag("Add the evidence, with links.")] = False
    verbose: Annotated[bool, VERBOSE] = False

    def names(self, *, every: bool) -> frozenset[str]:
        """Return the sections to show; those of a file in another format are all."""
        sections = ("releases", "calls", "limits", "evidence", "verbose")
        return frozenset(n for n in sections if every or self.verbose or getattr(self, n))


def _possible_file(path: str) -> str:
    """Refuse a path that cannot be a file before the work starts."""
    if path in STDOUT:
        return path
    # Not Path.is_dir: it raises for names that the system refuses.
    is_folder = os.path.isdir(path)
    if is_folder or not os.path.isdir(Path(path).parent):
        wrong = "it is a directory" if is_folder else "no such directory"
        hint = "name a file in a directory that exists"
        raise UsageError(f"cannot write the report: {wrong}", context=path, hint=hint)
    check_writable(Path(path))
    return path


OUTPUT = Option(
    "Output file; its suffix selects the format.", "output", short="-o", metavar="FILE", check=_possible_file,
    action="writes",
)  # fmt: skip


class OutputOptions(Record, frozen=True, kw_only=True):
    """Options that choose the format and the destination of an answer."""

    format: Annotated[str | None, formats(ANSWERS)] = None
    path: Annotated[str, OUTPUT] = ""
    brief: Annotated[bool, flag("JSON with the deciding facts, in 400 tokens.")] = False

    @property
    def to_stdout(self) -> bool:
        """Return whether the output goes to stdout because no file is named."""
        return self.path in STDOUT

    def chosen(self, names: Iterable[str]) -> str:
        """Return the format: that of ``--format``, else by the file's suffix, else the first."""
        by_suffix = format_of(self.path)
        named = self.format or (by_suffix if by_suffix in {*names} else None)
        if self.brief and named not in {None, "json"}:
            hint = "leave out the format, or --brief"
            raise UsageError(f"--brief shortens JSON, not {named}", context="--brief", hint=hint)
        return named or ("json" if self.brief else next(iter(names)))

    def apply_brief(self, text: str) -> str:
        """Return the text as it is written: the JSON of an answer is shortened by ``--brief``."""
        if not self.brief:
            return text
        if not text.startswith(("{", "[")):
            hint = "add --format json, or leave out --brief"
            raise UsageError("--brief shortens JSON, and this answer is a text", context="--brief", hint=hint)
        from opcheck.render.brief import brief

        return brief(text)

    def put(self, text: str, written: str = "written to") -> None:
        """Write a text to stdout or the file, and note in these words where the file is.

        Raises:
            UsageError: the file cannot be written.
        """
        text = self.apply_brief(text)
        if self.to_stdout:
            streams.emit(text)
        else:
            write_text(Path(self.path), text)
            streams.note(f"{written} {self.path}")

    def deliver(
        self, record: _Record, document: Callable[..., Document], sections: SectionOptions | None = None
    ) -> None:
        """Write an answer to stdout or the file.

        Args:
            record: the answer.
            document: makes its page; it takes the names of the sections to show if the verb has such flags.
            sections: the flags of the verb.

        Raises:
            UsageError: the file cannot be written.
        """
        from opcheck.render.text import WIDTH

        width = streams.columns(WIDTH) if self.to_stdout else WIDTH
        name = self.chosen(ANSWERS)
        shown = [sections.names(every=name != "text")] if sections else []
        full = bool(sections and sections.verbose)
        self.put(write(record, document(record, *shown), name, width=width, full=full))


def _sections(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that is no section of the text."""
    from opcheck.render.report import SECTIONS

    for name in names:
        if name not in SECTIONS:
            known = f"one of {', '.join(SECTIONS)}"
            raise UsageError(f"the report has no section {brief(name)}", hint=known)
    return names


SHOW = Option(
    "Sections to add: notes, operators, memory, time, transfers, evidence.",
    metavar="NAME,...",
    values=("notes", "operators", "memory", "transfers", "evidence"),
    separator=",",
    check=_sections,
)


class ReportOptions(OutputOptions, frozen=True, kw_only=True):
    """Options that choose the format and the destination of the report of an audit or of a run."""

    format: Annotated[str | None, formats(FORMATS)] = None
    color: Annotated[str, COLOR] = "auto"
    show: Annotated[tuple[str, ...], SHOW] = ()

    @property
    def is_text_on_stdout(self) -> bool:
        """Return whether a person reads the report on stdout."""
        return self.to_stdout and self.chosen(FORMATS) == "text"

    def deliver_report(self, report: Report, *, full: bool) -> None:
        """Write the report to stdout or the file, and to the summary of a step in CI.

        Raises:
            UsageError: the file cannot be written.
        """
        name = self.chosen(FORMATS)
        if self.to_stdout:
            streams.emit(self.shown(report, full=full))
        else:
            from opcheck.render import summary

            self.put(render(report, name), f"{summary.answer(report)}; the report is in")
        streams.step_summary(report, name)

    def shown(self, report: Report, *, full: bool) -> str:
        """Render the report; its text is as wide as the terminal, and coloured by ``--color``."""
        name = self.chosen(FORMATS)
        if name != "text":
            return self.apply_brief(render(report, name))
        from opcheck.render.report import SECTIONS, document
        from opcheck.render.text import WIDTH, as_text

        width = streams.columns(WIDTH)
        color = streams.color_wanted(self.color)
        shown = document(report, SECTIONS if full else self.show)
        return as_text(shown, color=color, width=width, full=full)
