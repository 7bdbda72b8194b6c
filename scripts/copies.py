"""What the trials on public repositories share: copies with their history (``DIR/OWNER+NAME/repo``), and fixes."""

import argparse
import subprocess
from pathlib import Path

from opcheck.common.versions import Target, Version
from opcheck.source.fixing import Fixed, fix

TARGET = Target(torch=Version(2, 15), macos=Version(26))


def copy_of(folder: Path, repository: str) -> Path:
    """Return where the copy of a repository, ``OWNER/NAME``, is expected."""
    return folder / repository.replace("/", "+") / "repo"


def git(copy: Path, *arguments: str) -> bytes:
    """Return what a command of git prints.

    Raises:
        subprocess.CalledProcessError: git refuses.
    """
    command = ["git", "-C", str(copy), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def write_commit(copy: Path, commit: str, root: Path, suffixes: tuple[str, ...]) -> None:
    """Write the files of a commit that have one of the suffixes; a file that the copy lacks is left out."""
    listed = git(copy, "ls-tree", "-r", "--name-only", commit).decode("utf-8", "replace")
    for name in listed.split("\n"):
        # Git quotes a name that is not plain text.
        if not name.endswith(suffixes) or name.startswith('"'):
            continue
        try:
            content = git(copy, "show", f"{commit}:{name}")
        except subprocess.CalledProcessError:
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def apply_fixes(root: Path, *, unsafe: bool) -> Fixed:
    """Correct the files of a repository as ``opcheck scan --fix`` does; return what was changed."""
    fixed = fix([str(root)], TARGET, unsafe=unsafe)
    for change in fixed.changes:
        change.path.write_bytes(change.contents()[1])
    return fixed


def trial_parser(description: str | None, page: Path, limit: int) -> argparse.ArgumentParser:
    """Return the parser of the arguments that the trials of fixes share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--copies", type=Path, default=Path(), metavar="DIR")
    parser.add_argument("--packages", default="", metavar="DIR", help="what they import beside torch")
    parser.add_argument("--limit", type=int, default=limit, metavar="SECONDS")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name has this text")
    parser.add_argument("--write", action="store_true", help=f"write reports/{page.name}")
    return parser
