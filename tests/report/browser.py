"""A page in a headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)


def dom(path: Path, fragment: str, tmp_path: Path, *, budget: int = 3000) -> str:
    """The page after its script ran; whatever the console says fails.

    ``budget``: milliseconds of a clock that does not wait; 0: the real one, until the page is loaded.
    """
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0",
            *([f"--virtual-time-budget={budget}"] if budget else []),
            "--dump-dom", f"{path.as_uri()}{fragment}",
        ],
        capture_output=True, text=True, check=True, timeout=1200,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout
