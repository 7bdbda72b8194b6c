"""The folders for what a later run may use again, and the conditions for taking something from them.

A cache can lie where others write: in a shared temporary folder, or in a checkout that contains a cache.  What is code
(wheels, environments, compiled kernels) is only taken from a folder that is this user's alone; a result is only taken
with the seal of this user's key.
"""

import functools
import hashlib
import hmac
import os
import secrets
import stat
import sys
from pathlib import Path

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import open_replacement

#: The lengths of the key and of a seal.
_BYTES = 32


def user_cache() -> Path:
    """Return ``opcheck`` in the folder for caches of this platform."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opcheck"


def make(folder: Path) -> Path:
    """Make a folder and those above it that are missing, each for this user alone; return it.

    Raises:
        OSError: it cannot be made.
    """
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(f"not a folder: {folder}")
    return folder


def is_private(folder: Path) -> bool:
    """Return True if only this user and the system's users can have put anything at the path of a folder."""
    if sys.platform == "win32":
        return True  # the rights of a file are no bits there, and a user's folders are closed to others
    try:
        # The owner of a link's target may be this user although a stranger chose the target.
        if any(path.lstat().st_uid not in (0, os.geteuid()) for path in (folder, folder.resolve())):
            return False
        above = {*folder.absolute().parents, *folder.resolve().parents}
        mode, *modes = [path.stat().st_mode for path in (folder, *above)]
    except (OSError, RuntimeError, ValueError):
        return False
    # In a sticky folder such as /tmp, only the owner of a folder replaces it.
    is_open = any(each & stat.S_IWOTH and not each & stat.S_ISVTX for each in modes)
    return stat.S_ISDIR(mode) and not mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_open


def require_private(folder: Path, hint: str = "name another folder in OPCHECK_CACHE") -> Path:
    """Return a folder of code, which is made if it is missing.

    Args:
        folder: what a run takes code from.
        hint: what to do instead.

    Raises:
        UsageError: it cannot be made, or others can write to it.
    """
    errors = (OSError, ValueError)
    with explain_errors(errors, "cannot make the cache folder", context=folder, hint=hint):
        make(folder)
    if not is_private(folder):
        message = "another user owns the cache folder or can write to it, so its code is not run"
        hint = f"{hint}, or delete the folder, or remove the write permission of others: chmod go-w"
        raise UsageError(message, context=str(folder), hint=hint)
    return folder


def load(path: Path) -> bytes | None:
    """Return what ``store`` wrote at a path; None if this user did not write it there, or it is damaged."""
    try:
        content = documents.read(path, follow=False)
    except documents.DocumentError:
        return None
    sealed, body = content[:_BYTES], content[_BYTES:]
    return body if hmac.compare_digest(sealed, seal(path, body)) else None


def store(path: Path, body: bytes) -> None:
    """Write what ``load`` returns, with its seal.

    Raises:
        OSError: it cannot be written.
    """
    make(path.parent)
    content = seal(path, body) + body
    if not path.parent.is_symlink():
        with open_replacement(path) as file:
            file.write(content)


def seal(path: Path, body: bytes) -> bytes:
    """Return what this user alone can compute of the content of a path."""
    about = f"{path.absolute()}\0".encode("utf-8", "surrogateescape")
    return hmac.digest(_key(user_cache()), about + body, hashlib.sha256)


def sign(body: bytes, key: bytes = b"") -> str:
    """Return the digits that only the owner of a key can compute of a text; this user's key by default."""
    return hmac.new(key or _key(user_cache()), body, hashlib.sha256).hexdigest()


@functools.cache
def _key(folder: Path) -> bytes:
    """Return this user's key, which is made once; a temporary key where it cannot be saved."""
    path = folder / "key"
    try:
        make(folder)
        if is_private(folder):
            if not os.path.lexists(path):
                with open_replacement(path, mode=0o600) as file:
                    file.write(secrets.token_bytes(_BYTES))
            key = documents.read(path, _BYTES, follow=False)
            if len(key) == _BYTES:
                return key
    except (OSError, ValueError):
        pass
    return secrets.token_bytes(_BYTES)
