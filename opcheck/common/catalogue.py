"""The catalogue of rules: what every rule has, where its page is, and how a folder of rules is listed.

The rules of ``audit``, ``scan`` and ``doctor`` differ in what they look at, and share the rest: a code, a severity
and a page. The pages are the Markdown files of ``docs/rules``, which the wheel ships; ``opcheck explain`` and
SARIF read them from there.
"""

import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from opcheck.common import documents
from opcheck.common.vocabulary import Severity

#: The parts of a page, in this order; others may come between.
PARTS = ("What", "Why", "Before", "After", "Evidence", "Since")

#: The package with the rules of a verb, and the title of their list.
GROUPS = {
    "opcheck.judge.rules": "opcheck audit: the calls of a model",
    "opcheck.source.rules": "opcheck scan: source that is not run",
    "opcheck.features.doctor.checks": "opcheck doctor: a machine",
}

_HEADING = re.compile(r"# (?P<id>OC\d{3}) (?P<slug>\w+): (?P<title>.+)\n\n")
_PART = re.compile(r"^\*\*([A-Z][a-z ]*)\.\*\*", re.MULTILINE)


class Page(NamedTuple):
    """The page of a rule: the name and the title in its heading, and the Markdown below it."""

    slug: str
    title: str
    body: str


@dataclass(frozen=True, kw_only=True)
class CatalogueRule:
    """One kind of finding. Each verb's rules add what they check."""

    id: str
    severity: Severity

    @property
    def slug(self) -> str:
        """The name of the rule in one word: ``unsupported_call``."""
        return read_page(self.id).slug

    @property
    def title(self) -> str:
        """What is wrong, in a line."""
        return read_page(self.id).title

    @property
    def page(self) -> str:
        """Markdown: what, why, before, after, evidence, since."""
        return read_page(self.id).body


AnyRule = TypeVar("AnyRule", bound=CatalogueRule)


def pages_folder() -> Path:
    """Return the folder of the pages: in the wheel a folder of the package, else ``docs/rules``."""
    package = Path(__file__).parents[1]
    shipped = package / "rule_pages"
    return shipped if shipped.is_dir() else package.parent / "docs" / "rules"


@cache
def read_page(code: str) -> Page:
    """Read the page of a rule.

    Raises:
        FileError: the rule has no page.
        ValueError: the page does not begin with the heading ``# CODE slug: title``.
    """
    text = documents.read_text(pages_folder() / f"{code}.md")
    heading = _HEADING.match(text)
    if heading is None or heading["id"] != code:
        raise ValueError(f"{code}.md does not begin with '# {code} slug: title'")
    return Page(heading["slug"], heading["title"], text[heading.end() :].strip())


def parts(page: str) -> dict[str, str]:
    """Split the body of a page into its parts by their names, in their order."""
    _, *named = _PART.split(page)
    return {name: body.strip() for name, body in zip(named[::2], named[1::2], strict=True)}


def discover(package: str, kind: type[AnyRule]) -> tuple[AnyRule, ...]:
    """Collect the rules of a package in the order of their codes.

    Every rule in the namespace of a module counts.
    """
    names = [module.name for module in pkgutil.iter_modules(import_module(package).__path__)]
    modules = [vars(import_module(f"{package}.{name}")) for name in names]
    rules = {rule.id: rule for module in modules for rule in module.values() if isinstance(rule, kind)}
    return tuple(rules[code] for code in sorted(rules))


def groups() -> dict[str, tuple[CatalogueRule, ...]]:
    """Return all rules below the title of their verb, in the order of their codes."""
    return {title: import_module(package).RULES for package, title in GROUPS.items()}


def by_id() -> dict[str, CatalogueRule]:
    """Return all rules by their codes."""
    return {rule.id: rule for rules in groups().values() for rule in rules}
