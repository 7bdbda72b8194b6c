"""Copies of public repositories, with their history, on which the trials run: ``DIR/OWNER+NAME/repo``."""

import subprocess
from pathlib import Path


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
