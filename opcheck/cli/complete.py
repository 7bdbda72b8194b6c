"""Shell completion of values, model names and files; click completes verbs, flags and choices itself.

``install`` runs only when a shell requests completions (``_OPCHECK_COMPLETE``), so that no other run pays for it.
Nothing here imports torch or a library of models: a library's names are read in its files.
"""

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import click
from click import shell_completion
from click.shell_completion import CompletionItem

from opcheck.capture.naming import LIBRARIES, library_models, package_folder
from opcheck.common import documents
from opcheck.common.errors import OpcheckError

_Item = CompletionItem[str]
#: What the words so far and the incomplete word are completed to; the shell is given those that begin with the latter.
_Values = Callable[[click.Context, str], Iterable[str]]

_MODEL_FILES = (".py", ".pt2")
_REPORT_FILES = (".json", ".yaml", ".yml")
_LIST_FILES = (".txt", ".yaml", ".yml", ".toml")


def install() -> None:
    """Extend click's shell classes with the completions that click lacks."""
    for shell in (_Bash, _Zsh, _Fish):
        shell_completion.add_completion_class(shell)


def attach(command: click.Command) -> None:
    """Attach completion functions to the parameters of a command and of its subcommands."""
    for parameter in command.params:
        values = _values_of(parameter)
        if values is not None and not isinstance(parameter.type, click.Choice):
            parameter.__dict__["shell_complete"] = _items(values)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            attach(each)
        if command.name == "sweep":  # its first word may be a model
            verbs = tuple(command.commands)
            command.__dict__["shell_complete"] = _items(lambda *at: [*verbs, *_swept(*at)])


def _values_of(parameter: click.Parameter) -> _Values | None:
    """Return what a parameter completes to: the values of its option, or those registered for its name or metavar."""
    # Not isinstance: the module of Flag need not be imported for a parameter that is none.
    source = getattr(parameter, "source", None)
    if source is not None and source.option.values:
        return _values_in_list(source.option.values, source.option.separator)
    name, metavar = parameter.name or "", parameter.metavar or ""
    return _BY_NAME.get(f"{name} {metavar}") or _BY_NAME.get(name) or _BY_METAVAR.get(metavar)


def _items(values: _Values) -> Callable[[click.Context, str], list[_Item]]:
    def complete(context: click.Context, incomplete: str) -> list[_Item]:
        try:
            texts = list(values(context, incomplete))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []  # a file that cannot be read: there is nothing to propose
        if texts in (["file"], ["dir"]):
            return [CompletionItem(incomplete, type=texts[0])]
        unique = dict.fromkeys(value for value in texts if value.startswith(incomplete))
        return [CompletionItem(value) for value in unique if value.isprintable()]

    return complete


def _constant(*values: str) -> _Values:
    return lambda _context, _incomplete: values


def _releases(*_at: object) -> list[str]:
    from opcheck.data.registrations import data_directory

    text = documents.read_text(data_directory() / "releases.yaml")
    return [*re.findall(r'^ +line: "?([\d.]+)', text, re.MULTILINE)[::-1], "latest", "installed"]


def _systems(*_at: object) -> list[str]:
    from opcheck.common.versions import MACOS_MAJORS, MACOS_NEWER

    return [str(major) for major in reversed((*MACOS_MAJORS, *MACOS_NEWER))]


def _range_of(single: Callable[..., list[str]]) -> _Values:
    return lambda *_at: [*(v for v in single() if v[0].isdigit()), "newest", "all"]


def _values_in_list(values: Sequence[str], separator: str) -> _Values:
    """Complete from these values; in a list with a separator, leave out the values that it has already."""

    def remaining(_context: click.Context, incomplete: str) -> list[str]:
        before = incomplete[: incomplete.rfind(separator) + 1] if separator else ""
        given = before.split(separator) if separator else ()
        return [f"{before}{value}" for value in values if value not in given]

    return remaining


def _target(_context: click.Context, incomplete: str) -> list[str]:
    """Complete the last part of torch=2.9,macos=14,fallback=1."""
    before, comma, last = incomplete.rpartition(",")
    values = {"torch": _releases(), "macos": _systems(), "fallback": ["1"]}
    key = last.partition("=")[0]
    if "=" in last:
        return [f"{before}{comma}{key}={value}" for value in values.get(key, ())]
    given = {part.partition("=")[0] for part in before.split(",")}
    return [f"{before}{comma}{key}=" for key in values if key not in given]


def _operators(_context: click.Context, incomplete: str) -> list[str]:
    import msgspec

    from opcheck.data.registrations import data_directory

    # The registrations are JSON; all of the lists take five times as long to load.
    folder = data_directory() / "registrations"
    names: list[str] = []
    for file in ("aten.json", "torchvision.json", "torchaudio.json"):
        operators = msgspec.json.decode(documents.read(folder / file)).get("operators")
        names += operators if isinstance(operators, dict) else ()
    if "::" in incomplete:
        return names
    spaces = dict.fromkeys(f"{name.partition('::')[0]}::" for name in names)
    if not incomplete:  # a list of thousands is useless
        return [*spaces, "torch.", "Tensor.", "nn.functional."]
    from opcheck.data import composites

    python = sorted(composites.python_callers())
    bare = sorted({name.partition("::")[2].partition(".")[0] for name in names})
    classes = [name.partition(".")[2] for name in python if name.startswith("nn.")]
    torch = [f"torch.{name}" for name in python] if incomplete.startswith("torch.") else []
    return [*spaces, *bare, *python, *torch, *(classes if incomplete[:1].isupper() else ())]


def _rules(_context: click.Context, incomplete: str) -> list[str]:
    from opcheck.common import catalogue
    from opcheck.judge import remedies

    every = [*catalogue.by_id(), *remedies.BY_ID, "schema"]
    return [name.lower() if incomplete[:1] == "o" else name for name in every]


def _library(incomplete: str) -> list[str]:
    """Complete ``timm:`` and, after it, the names of the library's models."""
    library = incomplete.partition(":")[0]
    if ":" not in incomplete or library not in LIBRARIES:
        return [f"{name}:" for name in sorted(LIBRARIES)]
    return [f"{library}:{name}" for name in library_models(library)]


def _attributes(incomplete: str) -> list[str]:
    """Complete the top-level names of a file, which is parsed and never run."""
    file = incomplete.rpartition(":")[0]
    names: list[str] = []
    for node in ast.parse(documents.read(file)).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [f"{file}:{name}" for name in names if not name.startswith("_")]


def _files(incomplete: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Complete files with these suffixes, and folders with a slash at their end."""
    folder, slash, start = incomplete.rpartition("/")
    before = folder + slash
    with os.scandir(Path(before or ".").expanduser()) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.startswith(".") and not start.startswith("."):
                continue
            if entry.is_dir():
                yield f"{before}{entry.name}/"
            elif entry.name.endswith(suffixes):
                # The colon continues with the names in a file of Python.
                yield f"{before}{entry.name}{':' if entry.name.endswith('.py') else ''}"


def _model_or_file(*suffixes: str) -> _Values:
    """Complete a model of a library, a model in a file, or a file with any of these suffixes."""

    def values(_context: click.Context, incomplete: str) -> list[str]:
        if ".py:" in incomplete:
            return _attributes(incomplete)
        files = [] if ":" in incomplete else [*_files(incomplete, (*_MODEL_FILES, *suffixes))]
        return [*files, *(_library(incomplete) if "/" not in incomplete else ())]

    return values


_models = _model_or_file()
_swept = _model_or_file(*_LIST_FILES)


def _names(table: str, *keys: str) -> list[str]:
    """Complete the value that the first present key has in each entry of a configuration table."""
    from opcheck.cli import config

    entries = config.table(Path.cwd())[0].get(table)
    values: list[object] = []
    for entry in entries if isinstance(entries, list) else ():
        named = entry if isinstance(entry, dict) else {keys[0]: entry}
        value: object = next((named[key] for key in keys if key in named), None)
        values += value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]


def _setting(context: click.Context, incomplete: str) -> list[str]:
    """Complete the parameters of the callable that a model's name refers to, as ``NAME=``."""
    # click leaves the arguments where they are, once a flag lacks its value.
    words = [context.params.get("model"), *context.args]
    file, _, attribute = next((str(word) for word in words if word), "").rpartition(":")
    if "=" in incomplete or not file.endswith(".py"):
        return []
    for node in ast.walk(ast.parse(documents.read(file))):
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            made = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            return [name for each in made if each.name == "__init__" for name in _arguments(each)]
        if isinstance(node, ast.FunctionDef) and node.name == attribute:
            return _arguments(node)
    return []


def _arguments(function: ast.FunctionDef) -> list[str]:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [f"{each.arg}=" for each in every if each.arg != "self"]


_file, _directory = _constant("file"), _constant("dir")

#: Completions by the parameter's name (and metavar), where the metavar alone is ambiguous.
_BY_NAME: Mapping[str, _Values] = {
    **dict.fromkeys(("logs", "observation", "paths", "program", "sources"), _file),
    **dict.fromkeys(("prediction", "source"), _model_or_file(*_REPORT_FILES)),
    "environment": lambda *_at: _names("targets", "environments"),
    "model": _models,
    "macos RANGE": _range_of(_systems),
    "models": _swept,
    "names": lambda *at: [*_names("models", "name", "model"), *_models(*at)],
    "query": _operators,
    "rule_id": _rules,
    "what": lambda *at: [*_releases(), *_model_or_file(*_REPORT_FILES)(*at)],
}
#: Completions by the metavar, so that a new flag with a known metavar needs no entry.
_BY_METAVAR: Mapping[str, _Values] = {
    "CODE": lambda *_at: import_module("opcheck.source.rules").BY_ID,
    "DTYPE": lambda *_at: import_module("opcheck.common.names").DTYPES,
    "FILE": _file,
    "FOLDER": _directory,
    "NAME=VALUE": _setting,
    # torch.optim has one module for each of its classes.
    "NAME[:ARG=VALUE,...]": lambda *_at: sorted(
        {path.stem for path in package_folder("torch").glob("optim/[a-z]*.py")}
        - {"optimizer", "lr_scheduler", "swa_utils"}
    ),
    "RANGE": _range_of(_releases),
    "RELEASE": _releases,
    "TARGET": _target,
    "VERSION": _systems,
    "[NAME=]FILE": _file,
}


#: The scripts of the shells; click inserts the names of the program and of its variable.
_SHELLS = Path(__file__).parent / "shells"


class _WholeWords(shell_completion.ShellComplete):
    """Completes ``--flag=value`` to whole words, like everything else."""

    def complete(self) -> str:
        """Return click's answer; an empty one where the shell's variables are missing or say nothing."""
        try:
            return super().complete()
        except (KeyError, ValueError):
            return ""

    def get_completions(self, args: list[str], incomplete: str) -> list[_Item]:
        """Return click's completions with the flag before each."""
        flag, equals, _ = incomplete.partition("=")
        try:
            items = super().get_completions(args, incomplete)
        except OpcheckError:
            return []  # the configuration is wrong: the verb reports it when it runs
        if flag.startswith("--") and equals:
            for item in items:
                item.value = f"{flag}={item.value}"
        return items


class _Bash(_WholeWords, shell_completion.BashComplete):
    """Completion for bash, which splits words at ``:`` and ``=`` and replaces the part after the last of them."""

    source_template = documents.read_text(_SHELLS / "bash.sh")


class _Zsh(_WholeWords, shell_completion.ZshComplete):
    """Click's completion for zsh, without a space after an unfinished word, and with files after ``--flag=``."""

    source_template = shell_completion.ZshComplete.source_template.replace(
        """            if [[ "$descr" == "_" ]]; then""",
        """            if [[ "$key" == *[:/=,.] ]]; then
                compadd -U -V unsorted -S '' -- "$key"
            elif [[ "$descr" == "_" ]]; then""",
    ).replace(
        """        elif [[ "$type" == "dir" ]]; then""",
        """        elif compset -P '--*='; [[ "$type" == "dir" ]]; then""",
    )


class _Fish(_WholeWords, shell_completion.FishComplete):
    """Click's completion for fish, with commas inside of values, and files after ``--flag=``."""

    source_template = documents.read_text(_SHELLS / "fish.fish")
