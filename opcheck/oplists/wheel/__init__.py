"""Read macOS arm64 wheels without executing them (needs the extra ``wheels``)."""

from __future__ import annotations

from opcheck.oplists.wheel.archive import default_cache
from opcheck.oplists.wheel.builder import BuildSummary, build
from opcheck.oplists.wheel.extension import ExtensionSummary, build_extension, is_extension

__all__ = [
    "BuildSummary",
    "ExtensionSummary",
    "build",
    "build_extension",
    "default_cache",
    "is_extension",
]
