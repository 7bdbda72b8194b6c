"""Options that users can set.  Each is declared once, as an annotated field of a record.

``autocast: Annotated[str, Option("Run under ...", metavar="DTYPE", check=...)] = ""`` in a record
of options is the flag ``--autocast`` with its variable OPCHECK_AUTOCAST (cli/options.py), a key of
``[tool.opcheck]`` (cli/config.py), a key of the gate's tables (features/gate/gate_records.py) and a
keyword argument of ``opcheck.audit`` (api.py).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from opcheck.common.errors import UsageError, located_at
from opcheck.common.files import inside

#: What a value does, which decides whether the file of a project may set it (cli/config.py): it chooses what
#: is judged or shown; it names what is read; it names what is written; it makes programs run or installs packages; it
#: lets code of a stranger run.
Action = Literal["chooses", "reads", "writes", "runs", "trusts"]

#: Those whose values are paths, which stay below the folder of the file.
PATHS: frozenset[Action] = frozenset({"reads", "writes"})
#: The actions that a verb takes from the file of a project: one that only reads source or logs, which may be a
#: stranger's, and one that runs programs of the project anyway.
READER: frozenset[Action] = frozenset({"chooses", "reads"})
RUNNER: frozenset[Action] = READER | {"writes", "runs"}


class Option(msgspec.Struct, frozen=True):
    """The declaration of an option: its help, its names, and the values that it takes."""

    help: str
    #: the long flag without its dashes, and the key; empty: the field's name with dashes; ``-m``: there is no long one
    name: str = ""
    #: ``-o``
    short: str = ""
    #: the flag that turns it off: ``--no-grad``
    negative: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    #: the range of a number: from ``least``, more than ``above``, up to ``most``
    least: int | None = None
    above: float | None = None
    most: int | None = None
    #: what a shell completes, where neither the metavar nor the choices give it
    values: tuple[str, ...] = ()
    #: between the values of one text; empty: the flag is given once for each value
    separator: str = ""
    #: the value of the flag where nothing follows it; empty: a value must follow
    bare: str = ""
    #: what the help shows in place of the default
    default_text: str = ""
    #: reads one text of the command line; a table and the Python API have values
    read: Callable[[str], Any] | None = None
    #: returns a value, wherever it comes from, as it is used; raises OpcheckError, whose place the caller adds
    check: Callable[[Any], Any] | None = None
    #: the type in a table of the configuration, where it differs from the field's
    table: Any = None
    #: what setting it does: whether the file of a project may
    action: Action = "chooses"
    #: whether it has an OPCHECK_* variable and a key of ``[tool.opcheck]``; else it is a flag alone
    configurable: bool = True
    #: that variable, where the variable of its name means something else
    variable: str = ""


def failing_on(levels: Iterable[str], more: str = ".") -> Option:
    """Declare ``--fail-on`` with these levels, and a note about them."""
    return Option(f"Exit with 1 for this and worse{more}", choices=tuple(levels))


class Declared(NamedTuple):
    """A field of a record, or a parameter of a verb's function, with its option."""

    field: str
    #: without None: ``str`` of ``str | None``
    type: Any
    #: ``msgspec.NODEFAULT``: there is none
    default: Any
    option: Option

    @property
    def name(self) -> str:
        """Return the long flag without its dashes, which is also the key of the configuration."""
        return self.option.name or self.field.replace("_", "-")

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the flag as the command line takes it: ``--grad/--no-grad``, ``-o``."""
        option = self.option
        flag = self.name if self.name.startswith("-") else f"--{self.name}"
        long = f"{flag}/{option.negative}" if option.negative else flag
        return (long, option.short) if option.short else (long,)

    @property
    def repeatable(self) -> bool:
        """Return whether the flag is given once for each value."""
        return get_origin(self.type) in {tuple, dict} and not self.option.separator

    def from_texts(self, value: Any) -> Any:
        """Convert texts of the command line to the option's value.

        Raises:
            OpcheckError: the option does not take them; the error names the flag.
        """
        option = self.option
        if option.separator:
            value = tuple(text.strip() for text in value.split(option.separator)) if value else ()
        if option.read is not None and self.repeatable:
            value = get_origin(self.type)(map(option.read, value))
        return self.checked(value, f"--{self.name}")

    def checked(self, value: Any, place: str) -> Any:
        """Check a value and return it as it is used.

        Raises:
            OpcheckError: the option does not take it; an error that has no place gets this place.
        """
        option = self.option
        if value in (self.default, None):
            return value
        with located_at(place):
            if option.choices and isinstance(value, str) and value not in option.choices:
                raise UsageError(f"there is no {self.name} {value!r}", hint=f"one of {', '.join(option.choices)}")
            return value if option.check is None else option.check(value)


def check_inside(value: Any, root: Path) -> None:
    """Check that texts name nothing outside of a folder: as a path, as ``NAME=PATH``, or as ``PATH:NAME``.

    Raises:
        UsageError: one leads out of it.
    """
    for text in [value] if isinstance(value, str) else value:
        for path in {text, text.partition("=")[2], text.rpartition(":")[0]}:
            inside(root, path)


def find_option(name: str, annotation: Any, default: Any) -> Declared | None:
    """Return the option of an annotation; None: it has none."""
    for option in get_args(annotation)[1:] if get_origin(annotation) is Annotated else ():
        if isinstance(option, Option):
            kind = get_args(annotation)[0]
            alternatives = [each for each in get_args(kind) if each is not type(None)]
            is_optional = type(None) in get_args(kind)
            return Declared(name, alternatives[0] if is_optional else kind, default, option)
    return None


def options_of(record: type[msgspec.Struct]) -> tuple[Declared, ...]:
    """Return the options that a record declares, in the order of its fields."""
    fields = msgspec.structs.fields(record)
    options = (find_option(field.name, field.type, _default(field)) for field in fields)
    return tuple(option for option in options if option is not None)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
