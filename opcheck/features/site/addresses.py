"""The addresses of pages: a path within the site, and links from one page to another."""

import hashlib
import re
from pathlib import PurePosixPath

#: The pages of the statements, by their sort.
STATEMENTS = {"limitation": "limitations", "advisory": "advisories"}
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def operator(name: str) -> str:
    """Return the address of an operator or an overload: ``aten::add.Tensor`` is on the page of ``aten::add``."""
    namespace, _, base = name.partition(".")[0].partition("::")
    return f"op/{namespace}/{base}"


def release(line: str) -> str:
    """Return the address of a release line."""
    return f"release/{line}"


def statement(name: str, sort: str) -> str:
    """Return the address of a limitation or an advisory, which is a place on the page of all."""
    return f"{STATEMENTS[sort]}.html#{name}"


def model(name: str) -> str:
    """Return the address of a model: characters that no file name can have become a dash and a digest."""
    prefix, _, rest = name.partition(":")
    parts = [prefix, rest] if rest else [prefix]
    return "/".join(("model", *map(_file_name, parts)))


def _file_name(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.startswith("."):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") + f"-{digest}"


def to_top(path: str) -> str:
    """Return what leads from a page to the site's top: ``../../``, empty at the top."""
    return "../" * (len(PurePosixPath(path).parts) - 1)
