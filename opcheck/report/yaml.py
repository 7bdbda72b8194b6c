"""The report as YAML."""

from __future__ import annotations

from typing import Any

import yaml

from opcheck.model import Report
from opcheck.report.content import as_dict

try:
    from yaml import CSafeDumper as _Dumper
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]


class _Plain(_Dumper):
    """Write a value that occurs twice out twice: anchors are for machines."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (PyYAML's signature)
        return True


def _text(dumper: _Plain, text: str) -> yaml.ScalarNode:
    """Half a character, as in a file's name that is no UTF-8, as the six characters of its number."""
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return dumper.represent_str(whole)


_Plain.add_representer(str, _text)


def render(report: Report) -> str:
    """The report as one YAML document, keys in the order of the schema."""
    return dump(as_dict(report))


def dump(content: Any) -> str:
    """Plain data as one YAML document, keys in their order."""
    text: str = yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=10_000)
    return text
