"""Inductor's Metal backend of a release: its Python files and Metal headers, unpacked from the macOS wheel."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from opcheck.common import documents
from opcheck.common.caches import require_private
from opcheck.common.errors import OpListError
from opcheck.common.yaml_text import load_shipped
from opcheck.data.wheels import archive
from opcheck.data.wheels.damage import damage

if TYPE_CHECKING:
    from opcheck.data.files import Release

#: What writes Metal, and what the kernels include.
BACKEND = "torch/_inductor/codegen/mps.py"
#: What writes C++ around it for AOTInductor; it came with 2.8.
WRAPPER = "torch/_inductor/codegen/cpp_wrapper_mps.py"
HEADERS = "torch/include"
#: How operators are decomposed and lowered, whatever the device.
RULES: tuple[str, ...] = tuple(load_shipped(__file__, "operator_rules.yaml"))
_MEMBERS = re.compile("|".join([*map(re.escape, (BACKEND, WRAPPER, *RULES)), rf"{HEADERS}/c10/metal/\w+\.h"]))
#: The content of a folder; another version of this program may have unpacked less.
_CONTENT = "3"
_HINT = "Inductor writes Metal in torch 2.7 and newer"


def unpack_inductor(release: Release, cache: Path | None = None) -> Path:
    """Return the folder with ``BACKEND``, ``WRAPPER`` and ``HEADERS`` of a release; its wheel is downloaded once.

    The files are code that a child process runs, so the listed wheel must have the digest of the op lists.

    Args:
        release: the release as the op lists have it.
        cache: where wheels are kept.

    Raises:
        OpListError: the wheel cannot be had, is damaged, is another file than the listed wheel, or has no such backend.
    """
    cache = cache or archive.default_cache()
    folder = require_private(cache.parent / "inductor") / _CONTENT / release.torch
    if (folder / BACKEND).is_file():
        return folder
    wheel = archive.obtain(release.torch, cache)
    if (
        wheel.name == release.wheel
        and hashlib.sha256(documents.read(wheel, documents.MOST_LARGE)).hexdigest() != release.sha256
    ):
        raise damage("other_wheel", f"{wheel}: its SHA-256 is not that of the op lists")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as scratch:
        content = Path(scratch, "content")
        with archive.open_archive(wheel, _HINT) as members:
            for name in filter(_MEMBERS.fullmatch, members.namelist()):
                path = content / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(members.read(name))
        if not (content / BACKEND).is_file():
            raise OpListError("the release's Inductor writes no Metal", context=wheel.name, hint=_HINT)
        # Another process may have been faster.
        shutil.rmtree(folder, ignore_errors=True)
        content.rename(folder)
    return folder
