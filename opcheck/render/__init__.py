"""Writes records as text, one writer for each format; pure: the same record gives the same bytes."""

import json
from importlib import import_module
from pathlib import PurePath
from typing import Any

import msgspec

from opcheck.common.sanitize import finish_document, for_json
from opcheck.features import pages
from opcheck.render.document import Document
from opcheck.render.markdown import as_markdown
from opcheck.render.text import as_text

#: The formats of a report by name, each with the suffixes of its files.
FORMATS: dict[str, tuple[str, ...]] = {
    "text": (".txt",),
    "yaml": (".yaml", ".yml"),
    "markdown": (".md",),
    "json": (".json",),
    "jsonl": (".jsonl", ".ndjson"),
    "sarif": (".sarif", ".sarif.json"),
    "junit": (".xml",),
    "github": (),
    "gitlab": (".gitlab.json",),
    "csv": (".csv",),
    "html": (".html", ".htm"),
}

#: The formats of every answer.
ANSWERS = ("text", "markdown", "json", "yaml")

#: The formats of a gate's run and of a scan.
WITHOUT_PAGE = tuple(name for name in FORMATS if name != "html")


def render(record: msgspec.Struct, format_name: str) -> str:
    """Write the report of an audit, of a gate's run or of a scan in the format of that name."""
    if format_name == "html":
        # Only a report has a page. Jinja is slow to load.
        return str(import_module("opcheck.render.report_page").render(record))
    source = import_module(pages()[type(record).__name__])
    if format_name in ANSWERS:
        content = source.content(record) if format_name in {"json", "yaml"} else None
        short = {"shown": ()} if format_name == "text" and "SECTIONS" in vars(source) else {}
        return write(content, source.document(record, **short), format_name)
    return finish_document(_findings(source, record, format_name), format_name)


def write(record: object, document: Document, format_name: str, **shown: Any) -> str:
    """Write an answer in a format of ANSWERS: the record for machines, the document for people.

    Args:
        record: The content of JSON and YAML.
        document: What text and Markdown say.
        format_name: A name from ANSWERS.
        shown: How text is shown; see ``as_text``.
    """
    if format_name in {"text", "markdown"}:
        text = as_text(document, **shown) if format_name == "text" else as_markdown(document)
        return finish_document(text, format_name)
    content = msgspec.to_builtins(record)
    if format_name == "json":
        return for_json(json.dumps(content, indent=2, ensure_ascii=False)) + "\n"
    from opcheck.common.yaml_text import dump

    return dump(content)


def _findings(source: Any, record: msgspec.Struct, format_name: str) -> str:
    from opcheck.render import findings

    if format_name == "jsonl":
        return "".join(json.dumps(line) + "\n" for line in source.lines(record))
    if format_name == "csv":
        return findings.table(source.COLUMNS, source.rows(record))
    if format_name == "junit":
        return findings.junit(*source.suites(record))
    write = {"sarif": findings.sarif, "github": findings.github, "gitlab": findings.gitlab}
    return write[format_name](source.finding_log(record))


def step_summary(record: msgspec.Struct) -> str:
    """Write a record as Markdown that is short enough for the summary of a step at GitHub."""
    from opcheck.render.findings import cut

    return cut(render(record, "markdown"))


def format_of(path: str) -> str | None:
    """Return the format of a file by its suffix, the longest that fits; None: there is none."""
    name = PurePath(path).name.lower()
    pairs = ((suffix, kind) for kind, suffixes in FORMATS.items() for suffix in suffixes)
    fitting = [pair for pair in pairs if name.endswith(pair[0])]
    return max(fitting, key=lambda entry: len(entry[0]), default=("", None))[1]
