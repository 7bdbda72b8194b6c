"""Write docs/rules: a page a rule and their index; with --check only say whether they are what it would write."""

from __future__ import annotations

import sys
from pathlib import Path

from opcheck.files import write_text
from opcheck.report.pages import files

DIRECTORY = Path(__file__).parents[1] / "docs" / "rules"


def stale(directory: Path = DIRECTORY) -> list[str]:
    """The names of the files that are missing, differ, or are no rule's."""
    wanted = files()
    there = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.md")}
    return sorted(name for name in wanted | there if wanted.get(name) != there.get(name))


def main(arguments: list[str]) -> int:
    """Write, or with --check compare; 1 where something differs."""
    names = stale()
    if "--check" in arguments:
        print("\n".join(f"docs/rules/{name} is not what it should be" for name in names))
        return 1 if names else 0
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for name in names:
        if name in wanted:
            write_text(DIRECTORY / name, wanted[name])
        else:
            (DIRECTORY / name).unlink()
    print(f"{len(names)} files written or removed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
