"""Reads the YAML files that the package ships, and writes plain data as YAML."""

from pathlib import Path
from typing import Any

import yaml

from opcheck.common import documents
from opcheck.common.sanitize import for_log, is_risky, show_hidden

try:
    from yaml import CSafeDumper as _Dumper
    from yaml import CSafeLoader as _Loader
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


#: Columns: no line is folded, because the rest of a text would begin a line.
_ENDLESS = 2**31 - 1


class _Plain(_Dumper):
    """Writes a repeated value out each time, because anchors are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (PyYAML's signature)
        return True


def _text(dumper: _Plain, text: str) -> yaml.ScalarNode:
    """Write a surrogate, as in a file name that is not UTF-8, as the six characters of its number."""
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if is_risky(whole):
        # In double quotes a text is one line, and has escapes.
        return dumper.represent_scalar("tag:yaml.org,2002:str", whole, style='"')
    return dumper.represent_str(whole)


_Plain.add_representer(str, _text)


def load_shipped(module: str | Path, name: str = "") -> Any:
    """Return the content of a YAML file of the package; it is not checked, as the package's code is not.

    Args:
        module: the ``__file__`` of the module that reads it.
        name: of the file, in the module's folder; empty: the module's own name.
    """
    path = Path(module).with_name(name) if name else Path(module).with_suffix(".yaml")
    return yaml.load(documents.read_text(path), Loader=_Loader)


def dump(content: Any) -> str:
    """Write plain data as one YAML document, with the keys in their order."""
    text: str = yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=_ENDLESS)
    return for_log(show_hidden(text))
