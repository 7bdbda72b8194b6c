"""Answers -> text, one kind of answer a file; pure: the same answer gives the same bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from opcheck.common.sanitize import finished, for_json
from opcheck.render.document import Document
from opcheck.render.markdown import as_markdown
from opcheck.render.text import as_text

#: What every answer can be written as.
FORMATS = ("text", "markdown", "json", "yaml")


def write(record: object, document: Document, format_name: str) -> str:
    """An answer in the format of that name: the record for machines, the document for people."""
    if format_name in {"text", "markdown"}:
        return finished((as_text if format_name == "text" else as_markdown)(document), format_name)
    content = msgspec.to_builtins(record)
    return as_json(content) if format_name == "json" else as_yaml(content)


def as_json(content: Any) -> str:
    """Plain data as JSON, keys in the order of the schema."""
    return for_json(json.dumps(content, indent=2, ensure_ascii=False)) + "\n"


def as_yaml(content: Any) -> str:
    """Plain data as YAML, keys in the order of the schema."""
    from opcheck.common.yaml_text import dump  # noqa: PLC0415  (PyYAML is slow to load)

    return dump(content)
