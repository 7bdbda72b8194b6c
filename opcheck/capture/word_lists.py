"""The words that captures look for: ``word_lists.yaml``."""

from pathlib import Path
from typing import Any

from opcheck.common.yaml_text import load_shipped

TABLES: dict[str, Any] = load_shipped(Path(__file__).with_suffix(".yaml"))


def read_words(name: str) -> frozenset[str]:
    """Return a set of names."""
    return frozenset(TABLES[name])
