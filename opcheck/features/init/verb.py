"""``opcheck init``: the commented ``[tool.opcheck]`` table of a project, and the workflow that runs the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from opcheck.cli import config, streams
from opcheck.cli.options import flag, verb
from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.files import inside, rewrite, write_text
from opcheck.common.sanitize import toml_text

_WORKFLOW = Path(".github/workflows/opcheck.yml")

#: The commits of the actions, as in this repository's own workflows.
_PINNED = {
    "checkout": "3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
    "python": "5fda3b95a4ea91299a34e894583c3862153e4b97 # v7.0.0",
}


@verb(
    "init",
    epilog="Writes into an existing pyproject.toml, else opcheck.toml. Without --model, the modules of this "
    "folder's files are found by reading them, without running them.",
)
def command(
    *,
    models: Annotated[
        tuple[str, ...],
        flag("Model for the gate to audit. Repeatable.", "model", metavar="MODEL"),
    ] = (),
    workflow: Annotated[bool, flag(f"Also write {_WORKFLOW}, which runs the gate.")] = False,
    printed: Annotated[bool, flag("Print the files instead of writing them.", "print")] = False,
) -> int:
    """Write the table, and the workflow if it is wanted; nothing that exists is changed."""
    content, where = config.table(Path.cwd())
    if content:
        raise UsageError(
            "this project is configured already",
            context=where,
            hint="opcheck gate runs it; edit the file to change it",
        )
    shared = Path(config.FILE)
    in_shared = shared.is_file()
    text = _table(models or _find_modules(), "tool.opcheck." if in_shared else "")
    if workflow and _WORKFLOW.exists() and not printed:
        raise UsageError(
            "there is a workflow already", context=str(_WORKFLOW), hint="leave --workflow out"
        )
    if printed:
        streams.emit(text + (f"\n# {_WORKFLOW}\n{_workflow()}" if workflow else ""))
        return 0
    if in_shared:
        _append(inside(Path.cwd(), config.FILE).resolve(), text)
    else:
        write_text(Path(config.OWN_FILE), text)
    streams.note(f"written to {config.FILE if in_shared else config.OWN_FILE}; next: opcheck gate")
    if workflow:
        inside(Path.cwd(), _WORKFLOW).parent.mkdir(parents=True, exist_ok=True)
        write_text(_WORKFLOW, _workflow())
        streams.note(f"written to {_WORKFLOW}")
    return 0


def _append(path: Path, text: str) -> None:
    """Append lines to a file and leave what it has: its ends of lines, its mark of the byte order, its permissions."""
    before = documents.read(path)
    end = b"\r\n" if b"\r\n" in before else b"\n"
    gap = end if before.endswith(b"\n") else end * 2
    rewrite(path, before, before + gap * bool(before.strip()) + text.encode().replace(b"\n", end))


def _find_modules() -> tuple[str, ...]:
    """Return the modules of this folder's files that need no argument; a library's model where there is none."""
    from opcheck.capture.naming import modules_in

    names = [
        f"{path}:{module.name}"
        for path in sorted(Path().glob("*.py"))
        for module in modules_in(path)
        if module.complete and not module.used
    ]
    return tuple(names) or ("torchvision:resnet18",)


def _table(models: tuple[str, ...], prefix: str) -> str:
    tables = [
        _template("model.toml").format(
            prefix=prefix, name=toml_text(_name(model)), model=toml_text(model)
        )
        for model in models
    ]
    head = f"[{prefix.rstrip('.')}]\n" if prefix else ""
    targets = _template("targets.toml").format(prefix=prefix, name=toml_text(_name(models[0])))
    return head + _template("settings.toml") + "".join(tables) + targets


def _name(model: str) -> str:
    return model.rpartition(":")[2] or model


def _workflow() -> str:
    return _template("workflow.yml").format(**_PINNED)


def _template(name: str) -> str:
    return documents.read_text(Path(__file__).parent / "templates" / f"{name}.template")
