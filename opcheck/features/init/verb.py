"""``opcheck init``: the commented ``[tool.opcheck]`` table of a project, and the workflow that runs the gate."""

import ast
import itertools
from collections import Counter
from pathlib import Path
from typing import Annotated, NamedTuple

from opcheck.cli import config, streams
from opcheck.cli.options import flag, verb
from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.files import inside, rewrite, write_text
from opcheck.common.python_source import parse
from opcheck.common.sanitize import toml_text
from opcheck.common.text import and_more, plural

_WORKFLOW = Path(".github/workflows/opcheck.yml")

#: Folders whose modules are no models of the project.
_ASIDE = frozenset({"test", "tests", "docs", "examples", "benchmarks"})
_MOST_FILES, _MOST_MODELS = 5_000, 20


@verb("init")
def command(
    *,
    models: Annotated[tuple[str, ...], flag("Model for the gate to audit. Repeatable.", "model", metavar="MODEL")] = (),
    workflow: Annotated[bool, flag(f"Also write {_WORKFLOW}, which runs the gate.")] = False,
    printed: Annotated[bool, flag("Print the files instead of writing them.", "print")] = False,
) -> int:
    """Write the table, and the workflow if it is wanted; nothing that exists is changed."""
    content, where = config.table(Path.cwd())
    if content:
        hint = "opcheck gate runs it; edit the file to change it"
        raise UsageError("this project is configured already", context=where, hint=hint)
    in_shared = Path(config.FILE).is_file()
    text = _table(_choose_models(models), "tool.opcheck." if in_shared else "")
    if workflow and _WORKFLOW.exists() and not printed:
        raise UsageError("there is a workflow already", context=str(_WORKFLOW), hint="leave --workflow out")
    if printed:
        streams.emit(text + (f"\n# {_WORKFLOW}\n{workflow_text()}" if workflow else ""))
        return 0
    if workflow:  # before a file is written: the folder may be no folder, or lead elsewhere
        inside(Path.cwd(), _WORKFLOW).parent.mkdir(parents=True, exist_ok=True)
    if in_shared:
        _append(inside(Path.cwd(), config.FILE).resolve(), text)
    else:
        write_text(Path(config.OWN_FILE), text)
    streams.note(f"written to {config.FILE if in_shared else config.OWN_FILE}; next: opcheck gate")
    if workflow:
        write_text(_WORKFLOW, workflow_text())
        streams.note(f"written to {_WORKFLOW}")
    return 0


def _append(path: Path, text: str) -> None:
    """Append lines to a file and leave what it has: its ends of lines, its mark of the byte order, its permissions."""
    before = documents.read(path)
    end = b"\r\n" if b"\r\n" in before else b"\n"
    gap = end if before.endswith(b"\n") else end * 2
    rewrite(path, before, before + gap * bool(before.strip()) + text.encode().replace(b"\n", end))


class _FolderModules(NamedTuple):
    """The modules that this folder's files define, as opcheck audit names them; parts of others are left out."""

    files: int
    models: tuple[str, ...]
    #: modules that need arguments
    incomplete: tuple[str, ...]


def _find_modules() -> _FolderModules:
    """Return the modules of the files below this folder; files are read, not run."""
    from opcheck.capture.naming import read_modules
    from opcheck.source.source import find

    listed = itertools.islice(find(["."], Counter(), []), _MOST_FILES)
    paths = (each.path for each in listed)
    files = [path for path in paths if path.suffix == ".py" and _ASIDE.isdisjoint(path.parts)]
    defined = {path: modules for path in files if (modules := read_modules(path).modules)}
    parts = {name for path in defined for name in _names_in_classes(path)}
    names: dict[bool, list[str]] = {True: [], False: []}
    for path, modules in defined.items():
        for each in modules:
            if not each.used and each.name not in parts:
                names[each.complete].append(f"{_module_name(path)}:{each.name}")
    return _FolderModules(len(files), tuple(names[True]), tuple(names[False]))


def _names_in_classes(path: Path) -> set[str]:
    """Return the classes that other classes' methods of a file create."""
    return {
        name
        for node in parse(documents.read(path)).body
        if isinstance(node, ast.ClassDef)
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        for name in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))
        if name != node.name
    }


def _module_name(path: Path) -> str:
    """Return the name by which a file is imported from this folder or its ``src``; else its path."""
    top = path.parent
    while (top / "__init__.py").is_file() and top != Path():
        top = top.parent
    if top == path.parent or top not in (Path(), Path("src")):
        return path.as_posix()
    names = path.relative_to(top).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def _choose_models(models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the models of the table: those of the flag, or those that the folder has.

    Raises:
        UsageError: the folder has no module that can be audited by its name alone.
    """
    if models:
        return models
    folder = _find_modules()
    files, incomplete = plural(folder.files, "Python file"), and_more(folder.incomplete, 5)
    if not folder.models:
        example = folder.incomplete[0] if incomplete else "package.module:Class"
        problem = f"no module works without arguments; {incomplete} needs some"
        raise UsageError(
            problem if incomplete else f"no module of PyTorch in {files}",
            context=f"{Path.cwd()}, without its tests and documentation",
            hint=f"name a model: opcheck init --model {example}; its key config has the arguments",
        )
    modules = plural(len(folder.models), "module")
    streams.note(f"{modules} without arguments in {files}: {and_more(folder.models, 5)}")
    if incomplete:
        streams.note(f"needs arguments, left out: {incomplete}")
    return folder.models[:_MOST_MODELS]


def _table(models: tuple[str, ...], prefix: str) -> str:
    def table(template: str, model: str) -> str:
        name = toml_text(model.rpartition(":")[2] or model)
        return _template(template).format(prefix=prefix, name=name, model=toml_text(model))

    head = f"[{prefix.rstrip('.')}]\n" if prefix else ""
    tables = "".join(table("model.toml", model) for model in models)
    return f"{head}{_template('settings.toml')}{tables}{table('targets.toml', models[0])}"


def workflow_text() -> str:
    """Return the workflow that runs the gate, its actions pinned by the commits of this repository's workflows."""
    return _template("workflow.yml")


def _template(name: str) -> str:
    return documents.read_text(Path(__file__).parent / "templates" / f"{name}.template")
