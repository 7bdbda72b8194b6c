"""The pages of all rules: what ``opcheck explain`` shows, and what ``docs/rules`` holds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, Protocol

#: What each page has, in this order; others may stand between.
PARTS = ("What", "Why", "Before", "After", "Evidence", "Since")

_PART = re.compile(r"^\*\*([A-Z][a-z ]*)\.\*\*", re.MULTILINE)


class Page(Protocol):
    """What a rule, of whichever verb, says about itself."""

    @property
    def id(self) -> str:
        """OC101."""

    @property
    def slug(self) -> str:
        """unsupported_call."""

    @property
    def title(self) -> str:
        """What is wrong, in a line."""

    @property
    def severity(self) -> str:
        """error, warning, note."""

    @property
    def page(self) -> str:
        """Markdown."""


class Group(NamedTuple):
    """The rules of one verb."""

    title: str
    rules: tuple[Page, ...]


#: What finds them, and where their table is; a verb with rules of its own needs its line here.
_TABLES = (
    ("opcheck audit: the calls of a model", "opcheck.rules", "RULES"),
    ("opcheck scan: source that is not run", "opcheck.scan.rules", "RULES"),
    ("opcheck doctor: a machine", "opcheck.doctor.examine", "CHECKS"),
)


def groups() -> tuple[Group, ...]:
    """All rules by the verb that finds them, in the order of their codes."""
    return tuple(
        Group(title, tuple(sorted(_table(module, name), key=lambda rule: rule.id)))
        for title, module, name in _TABLES
    )


def by_id() -> dict[str, Page]:
    """All rules by their codes."""
    return {rule.id: rule for group in groups() for rule in group.rules}


def text(rule: Page) -> str:
    """The page of a rule as Markdown."""
    return f"# {rule.id} {rule.slug}: {rule.title}\n\n{rule.page.strip()}\n"


def parts(page: str) -> dict[str, str]:
    """The parts of a page by their names, in their order."""
    _, *found = _PART.split(page)
    return {name: body.strip() for name, body in zip(found[::2], found[1::2], strict=True)}


def index() -> str:
    """The list of all rules as Markdown, with links to the pages beside it."""
    lines = [
        "# Rules",
        "",
        "Written by scripts/refresh_rules.py: `opcheck explain CODE` says the same.",
    ]
    for group in groups():
        lines += ["", f"## {group.title}", "", "| code | severity | what |", "| --- | --- | --- |"]
        lines += [
            f"| [{one.id}]({one.id}.md) | {one.severity} | {one.title} |" for one in group.rules
        ]
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    """The files of ``docs/rules`` by their names."""
    return {"README.md": index()} | {f"{code}.md": text(rule) for code, rule in by_id().items()}


def _table(module: str, name: str) -> Sequence[Page]:
    rules: Sequence[Page] = getattr(import_module(module), name)
    return rules
