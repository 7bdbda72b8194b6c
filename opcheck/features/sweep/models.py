"""Resolves the models of a sweep: names, patterns of a library's models, and files that list them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from opcheck.capture.naming import full_name
from opcheck.capture.parent import variables
from opcheck.common import documents
from opcheck.common.errors import ModelLoadError, OpcheckError, UsageError, explain_errors
from opcheck.features.sweep.sweep_records import LIBRARIES, Config, Model, library_of
from opcheck.worker.worker import Worker, WorkerError

#: What a list of models ends with; another file is a model's own.
_LISTS = (".yaml", ".yml", ".toml", ".txt")
#: seconds for importing all libraries
_IMPORTS = 600.0
_FORM = "a model, or a table with model, and config, inputs or family where they are needed"


class _ModelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    config: Config = {}
    inputs: tuple[str, ...] = ()
    family: str = ""


class _ModelList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: list[str | _ModelEntry]


def models(texts: Iterable[str]) -> tuple[Model, ...]:
    """Return the models that the texts name, in their order, each once.

    Raises:
        UsageError: a file that cannot be read, or is no list of models.
        ModelLoadError: a name is none of a model, or a pattern's library is not installed or has nothing that fits.
    """
    entries = list({msgspec.json.encode(each): each for text in texts for each in _entries(text)}.values())
    of_libraries = [each.model for each in entries if library_of(each.model) in LIBRARIES]
    patterns = [text for text in of_libraries if not {*"*?["}.isdisjoint(text)]
    listed = _list_models(list(dict.fromkeys(patterns))) if patterns else {}
    unique: dict[bytes, Model] = {}
    for entry in entries:
        for model in listed.get(entry.model) or [Model(spec=full_name(entry.model))]:
            family = entry.family or model.family or model.spec.partition(":")[2]
            whole = replace(model, config=entry.config, inputs=entry.inputs, family=family)
            unique.setdefault(msgspec.json.encode(whole), whole)
    if not unique:
        raise UsageError("there is no model to sweep", context=", ".join(texts), hint=f"list {_FORM}")
    return tuple(unique.values())


def _entries(text: str) -> Iterator[_ModelEntry]:
    if not text.endswith(_LISTS):
        yield _ModelEntry(text)
        return
    path = Path(text)
    with explain_errors(documents.DocumentError, "cannot read the list of models", context=text, hint="name a file"):
        content = documents.read_text(path)
    with explain_errors(documents.DocumentError, "not a list of models", context=text, hint=f"each is {_FORM}"):
        entries = _parse(content, path.suffix)
    yield from (each if isinstance(each, _ModelEntry) else _ModelEntry(each) for each in entries)


def _parse(content: str, suffix: str) -> list[str | _ModelEntry]:
    if suffix == ".txt":
        lines = (line.partition("#")[0].strip() for line in content.splitlines())
        return [line for line in lines if line]
    raw = documents.from_toml(content) if suffix == ".toml" else documents.from_yaml(content)
    return documents.convert({"models": raw} if isinstance(raw, list) else raw, _ModelList).models


def _list_models(patterns: list[str]) -> dict[str, list[Model]]:
    """List the models of each pattern, in a process that imports the libraries."""
    with Worker[list[str], dict[str, list[Model]]](
        "opcheck.features.sweep.server:answer_patterns",
        dict[str, list[Model]],
        environment={**variables(), "OMP_NUM_THREADS": "1"},
    ) as worker:
        try:
            return worker.ask(patterns, _IMPORTS)
        except OpcheckError as error:
            raise ModelLoadError(error.message, context=error.context, hint=error.hint) from error
        except WorkerError as error:
            problem = f"the libraries cannot be imported: {error.printed or error}"
            hint = "import them in a Python of this environment to see all that is printed"
            raise ModelLoadError(problem, context=", ".join(patterns), hint=hint) from error
