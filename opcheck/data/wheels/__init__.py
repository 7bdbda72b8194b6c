"""Read macOS arm64 wheels without executing them (needs the extra ``wheels``)."""

from __future__ import annotations

from opcheck.data.wheels.archive import default_cache
from opcheck.data.wheels.builder import BuildSummary, build
from opcheck.data.wheels.extension import ExtensionSummary, build_extension, is_extension

__all__ = [
    "BuildSummary",
    "ExtensionSummary",
    "build",
    "build_extension",
    "default_cache",
    "is_extension",
]
