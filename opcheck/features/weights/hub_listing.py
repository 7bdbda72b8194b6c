"""The files of a repository on a hub; of weights only the bytes of their headers are requested."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from opcheck.capture import repository
from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import ModelLoadError, OpcheckError
from opcheck.common.text import type_and_text
from opcheck.weights import reading
from opcheck.weights.stored import open_fetched

#: Bytes that a request asks for: most headers of safetensors files are shorter.
_BLOCK, _LARGEST = 1 << 16, 8 << 20
#: Bytes that may be requested of a file.
_MOST = 512 << 20
_MOST_TEXT = 16 << 20
_OF_REPOSITORY = 2
#: Seconds for all that is read of a repository.
_PATIENCE = 120.0
_PARTIAL, _COMPLETE = 206, 200


def open_hub(spec: str) -> tuple[HubListing, str]:
    """Return the listing of a repository, and the file that the name adds: ``org/name/file.gguf``.

    Raises:
        ModelLoadError: it is no name, there is no such repository or file, or the hub cannot be reached.
    """
    plain, _, revision = spec.removeprefix(repository.HUB).partition("@")
    parts = plain.split("/")
    file = "/".join(parts[_OF_REPOSITORY:])
    name = "/".join(parts[:_OF_REPOSITORY]) + (f"@{revision}" if revision else "")
    listing = HubListing(name, spec)
    if file and file not in listing.names:
        near = (
            ", ".join(each for each in listing.names if each.endswith(reading.SUFFIXES))
            or "no weights"
        )
        raise ModelLoadError(
            f"{parts[0]}/{parts[1]} has no file {file}",
            context=f"hub name {spec}",
            hint=f"it has {near[:300]}",
        )
    return listing, file


class HubListing:
    """A repository on a hub."""

    is_whole = False

    def __init__(self, name: str, source: str) -> None:
        """Ask the hub for the names of the files.

        Raises:
            ModelLoadError: there is no such repository, or the hub cannot be reached.
        """
        self._name = repository.parse_name(name)
        self.source = source
        self._until = time.monotonic() + _PATIENCE
        info = self._ask(
            lambda hub: hub.HfApi().model_info(
                self._name.repository, revision=self._name.revision, timeout=repository.PATIENCE
            )
        )
        self._commit = str(info.sha)
        self.names = sorted(
            entry.rfilename for entry in info.siblings or () if _is_inside(entry.rfilename)
        )

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        try:
            import huggingface_hub as hub
        except ImportError as error:
            raise ModelLoadError(
                "huggingface_hub is not installed",
                context=f"{self.source} is on a hub",
                hint="python -m pip install huggingface_hub",
            ) from error
        try:
            return request(hub)
        except OpcheckError:
            raise
        except Exception as error:  # huggingface_hub takes what a server sends as it comes
            if repository.is_unreachable(error):
                raise ModelLoadError(
                    f"the hub does not answer ({type_and_text(error)})",
                    context=f"{self.source} is neither a file nor a folder here",
                    hint="connect and try again, or name a file or a folder",
                ) from error
            raise repository.refusal(error, self._name) from error

    def text(self, name: str) -> str:
        """Return a short text, which goes to the hub's own cache."""
        path = self._ask(
            lambda hub: hub.hf_hub_download(self._name.repository, name, revision=self._commit)
        )
        return documents.read_text(Path(path), _MOST_TEXT)

    @contextlib.contextmanager
    def open_header(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file by requests of ranges; its size comes with the first answer."""
        remote = self._ask(
            lambda hub: _RemoteFile(hub, self._name.repository, name, self._commit, self._until)
        )
        yield open_fetched(remote.fetch, remote.size, _BLOCK), remote.size


def _is_inside(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/") and "\\" not in name


class _RemoteFile:
    """A file on a server that answers requests of ranges."""

    def __init__(self, hub: Any, name: str, file: str, commit: str, until: float) -> None:
        utilities: Any = importlib.import_module("huggingface_hub.utils")

        self._address = hub.hf_hub_url(name, file, revision=commit)
        self._headers = utilities.build_hf_headers()
        self._session = utilities.get_session()
        self._check = utilities.hf_raise_for_status
        self._left = _MOST
        self._until = until
        self.size = 0
        self._block = _BLOCK
        self._start = 0
        self._read = self._request(0, _BLOCK)

    def fetch(self, offset: int, count: int) -> bytes:
        """Return these bytes.

        Raises:
            DocumentError: the server sends others, or too many were requested.
        """
        if not self._start <= offset <= offset + count <= self._start + len(self._read):
            # A header that continues is long: each request asks for twice as much.
            self._block = min(2 * self._block, _LARGEST)
            self._start = offset
            self._read = self._request(offset, min(max(count, self._block), self.size - offset))
        at = offset - self._start
        return self._read[at : at + count]

    def _request(self, offset: int, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise DocumentError(f"its header is longer than {_MOST >> 20} MiB")
        headers = {**self._headers, "range": f"bytes={offset}-{offset + count - 1}"}
        with self._session.stream(
            "GET",
            self._address,
            headers=headers,
            timeout=repository.PATIENCE,
            follow_redirects=True,
        ) as response:
            self._check(response)
            if response.status_code != _PARTIAL and (offset or response.status_code != _COMPLETE):
                raise DocumentError("the server sends no ranges of files")
            total = response.headers.get("content-range", "").rpartition("/")[2]
            length = total or response.headers.get("content-length", "0")
            self.size = int(length) if length.isdigit() else 0
            content = b""
            for part in response.iter_bytes():
                content += part
                if len(content) >= count:
                    break
                if time.monotonic() > self._until:
                    raise DocumentError(f"the hub takes longer than {_PATIENCE:g} s")
        return content[:count]
