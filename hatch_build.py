"""The README as a package index shows it: its links lead to the repository, wherever the text is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A relative target of a link or an image of Markdown.
_TARGET = re.compile(r"(?P<before>(?P<image>!?)\[[^]]*\]\()(?P<path>(?!https?:|#|mailto:)[^)\s]+)")


def absolute(text: str, repository: str) -> str:
    """Return Markdown whose relative links lead to ``repository``, images to the file itself."""

    def linked(match: re.Match[str]) -> str:
        view = "raw" if match["image"] else "blob"
        return f"{match['before']}{repository}/{view}/main/{match['path']}"

    return _TARGET.sub(linked, text)


class ReadmeHook(MetadataHookInterface):
    """Sets ``readme``, the only field of the metadata that is made here."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text to the metadata of pyproject.toml."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, metadata["urls"]["Source"]),
        }
