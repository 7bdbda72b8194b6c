"""Write the sample reports of the zoo's models, or check that they are what is committed.

    python scripts/refresh_reports.py [--check] [MODEL ...]

Run from the top of the repository: the reports name files relative to it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from opcheck.audit import audit
from opcheck.capture.request import CaptureRequest
from opcheck.files import write_text
from opcheck.oplists.registrations import load
from opcheck.report import render

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "reports"
SUFFIXES = {"yaml": ".yaml", "markdown": ".md"}

#: Where the reports are about: a release that the development environment has installed.
TORCH, MACOS = "2.13", "15.0"


def main() -> int:
    """Write or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description="Refresh the sample reports.")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on a difference")
    options = parser.parse_args()
    different = []
    for model in options.models or _models():
        for file, text in rendered(model).items():
            if file.is_file() and file.read_text(encoding="utf-8") == text:
                continue
            different.append(file.name)
            if not options.check:
                write_text(file, text)
        print(f"{model} done", file=sys.stderr)
    print(f"{len(different)} files differ: {', '.join(different) or 'none'}")
    return int(options.check and bool(different))


def rendered(model: str) -> dict[Path, str]:
    """The files of one model's report, with their text."""
    request = CaptureRequest(model=f"scripts/zoo.py:{model}", torch=TORCH, macos=MACOS)
    report = audit(request, load())
    return {
        REPORTS / f"{model}{suffix}": render(report, name) for name, suffix in SUFFIXES.items()
    }


def _models() -> list[str]:
    sys.path.insert(0, str(ROOT))
    from scripts.zoo import ZOO  # noqa: PLC0415 - importing the zoo imports torch

    return list(ZOO)


if __name__ == "__main__":
    sys.exit(main())
