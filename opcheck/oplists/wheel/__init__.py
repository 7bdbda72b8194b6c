"""Read a macOS arm64 wheel of torch without executing it (needs the extra ``wheels``)."""

from __future__ import annotations

from opcheck.oplists.wheel.archive import default_cache
from opcheck.oplists.wheel.builder import BuildSummary, build

__all__ = ["BuildSummary", "build", "default_cache"]
