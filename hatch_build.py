"""What the wheel holds: the README with links that work anywhere, and the op lists without the review material."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: What only reviewers of the op lists read.
_REVIEW = frozenset({"extracted", "texts.yaml", "reports.yaml", "agreement.md"})

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
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Source"])}


class OpListsHook(BuildHookInterface[Any]):
    """Puts the op lists into the wheel, without the review material."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Add each of their entries to the build."""
        for path in sorted(Path(self.root, "op_lists").rglob("*")):
            below = path.relative_to(self.root)
            if path.is_file() and _REVIEW.isdisjoint(below.parts):
                build_data["force_include"][str(path)] = f"opcheck/{below.as_posix()}"
