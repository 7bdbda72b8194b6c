"""Which models a sweep is of: names, patterns of a library's models, and files that list them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from opcheck.capture.parent import environment
from opcheck.capture.request import CaptureRequest
from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import ModelLoadError, UsageError
from opcheck.project.sweep.records import LIBRARIES, Config, Model, library_of
from opcheck.worker.children import how_it_ended, last_line, python, run

#: What a list of models ends with; another file is a model's own.
_LISTS = (".yaml", ".yml", ".toml", ".txt")
#: seconds for importing all libraries
_IMPORTS = 600.0
_FORM = "a model, or a table with model, and config, inputs or family where they are needed"


#: What the catalogue answers: the models of each pattern, or the three lines of an error.
_LISTED: Any = dict[str, list[Model]] | list[str]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    config: Config = {}
    inputs: tuple[str, ...] = ()
    family: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: list[str | _Entry]


def models(texts: Iterable[str]) -> tuple[Model, ...]:
    """The models that the texts mean, in their order, each once.

    Raises:
        UsageError: a file that cannot be read, or is no list of models.
        ModelLoadError: a pattern of a library that is not installed, or that nothing fits.
    """
    entries = [entry for text in texts for entry in _entries(text)]
    patterns = [entry.model for entry in entries if _is_pattern(entry.model)]
    listed = _listed(list(dict.fromkeys(patterns))) if patterns else {}
    found: dict[bytes, Model] = {}
    for entry in entries:
        for model in listed.get(entry.model) or [Model(spec=entry.model)]:
            whole = msgspec.structs.replace(
                model,
                config=entry.config,
                inputs=entry.inputs,
                family=entry.family or model.family or model.spec.partition(":")[2],
            )
            found.setdefault(msgspec.json.encode(whole), whole)
    if not found:
        raise UsageError(
            "there is no model to sweep", context=", ".join(texts), hint=f"list {_FORM}"
        )
    return tuple(found.values())


def _is_pattern(text: str) -> bool:
    return library_of(text) in LIBRARIES and any(letter in text for letter in "*?[")


def _entries(text: str) -> Iterator[_Entry]:
    if not text.endswith(_LISTS):
        yield _Entry(text)
        return
    path = Path(text)
    try:
        content = documents.read_text(path)
    except DocumentError as error:
        raise UsageError(
            f"cannot read the list of models: {error}", context=text, hint="name a file"
        ) from error
    try:
        for each in _parsed(content, path.suffix):
            yield each if isinstance(each, _Entry) else _Entry(each)
    except DocumentError as error:
        raise UsageError(
            f"not a list of models: {error}", context=text, hint=f"each is {_FORM}"
        ) from error


def _parsed(content: str, suffix: str) -> list[str | _Entry]:
    if suffix == ".txt":
        lines = (line.partition("#")[0].strip() for line in content.splitlines())
        return [line for line in lines if line]
    raw = documents.from_toml(content) if suffix == ".toml" else documents.from_yaml(content)
    whole = {"models": raw} if isinstance(raw, list) else raw
    return documents.convert(whole, _File).models


def _listed(patterns: list[str]) -> dict[str, list[Model]]:
    """The models of each pattern, from a process that imports the libraries."""
    request = CaptureRequest(model="", torch="", macos="")
    done = run(
        python("-m", "opcheck.project.sweep.catalogue"),
        _IMPORTS,
        environment={
            **os.environ,
            **environment(request),
            "PYTORCH_JIT": "0",
            "OMP_NUM_THREADS": "1",
        },
        given=msgspec.json.encode(patterns),
    )
    answer: dict[str, list[Model]] | list[str]
    try:
        answer = documents.from_json(done.out, _LISTED)
    except DocumentError as error:
        last = last_line(done.err) or how_it_ended(done.code)
        raise ModelLoadError(
            f"the libraries cannot be imported: {f'not done after {_IMPORTS:g} s' if done.late else last}",
            context=", ".join(patterns),
            hint="run python -m opcheck.project.sweep.catalogue to see all that is printed",
        ) from error
    if isinstance(answer, list):
        message, context, hint = answer
        raise ModelLoadError(message, context=context, hint=hint)
    return answer
