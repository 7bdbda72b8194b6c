"""HTML whose text is escaped unless somebody says that it is HTML already."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from opcheck.common.sanitize import for_html, for_json


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | int | bool | None) -> Markup:
    """An element; ``class_`` is the attribute class, ``data_x`` data-x; None and False leave one out."""
    written = "".join(_attribute(*entry) for entry in attributes.items())
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Several pieces one after the other."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else for_html(escape(child)) for child in children
        )
    )


def embedded(content: Any) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return for_json(text.replace("<", "\\u003c"))


def _attribute(name: str, value: str | int | bool | None) -> str:  # noqa: FBT001  (True: no value)
    if value is None or value is False:
        return ""
    spelled = name.rstrip("_").replace("_", "-")
    return f" {spelled}" if value is True else f' {spelled}="{for_html(escape(str(value)))}"'
