"""The files of a folder or of a repository: their names, their configurations, and streams of their headers."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from opcheck.capture import repository
from opcheck.common import documents
from opcheck.common.errors import ModelLoadError, OpcheckError
from opcheck.common.files import inside
from opcheck.common.text import type_and_text
from opcheck.common.yaml_text import load_shipped
from opcheck.weights import reading
from opcheck.weights.stored import StoredFile, open_fetched

#: Files of a folder that are looked at, and levels of folders.
_MOST_FILES, _DEPTH = 20_000, 4
#: Bytes of a configuration.
MOST_TEXT = 16 << 20


class FolderListing:
    """A folder of this machine: its files by their names with slashes."""

    #: whether the data of a tensor must lie in its file
    is_whole = True

    def __init__(self, folder: Path, source: str) -> None:
        """Find the files; links that lead out of the folder are left out when they are opened.

        Args:
            folder: where the files are.
            source: as the user wrote it.
        """
        self.source = source
        self.folder = folder
        self.names = sorted(itertools.islice(self._walk(), _MOST_FILES))

    def _walk(self) -> Iterator[str]:
        for root, folders, files in os.walk(self.folder):
            inner = Path(root).relative_to(self.folder)
            folders[:] = [] if len(inner.parts) + 1 >= _DEPTH else [name for name in folders if name[0] != "."]
            yield from ((inner / name).as_posix() for name in files)

    def text(self, name: str) -> str:
        """Return a short text."""
        return documents.read_text(inside(self.folder, name), MOST_TEXT)

    def open_header(self, name: str) -> contextlib.AbstractContextManager[tuple[BinaryIO, int]]:
        """Open a file; its size comes with it."""
        return open_local(inside(self.folder, name))


@contextlib.contextmanager
def open_local(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file of this machine; its size comes with it.

    Raises:
        ModelLoadError: it cannot be opened.
    """
    try:
        stream = documents.open_file(path)
    except OSError as error:
        raise reading.make_damaged_error(str(path), str(error)) from error
    with stream:
        yield stream, os.fstat(stream.fileno()).st_size


def read_stored(listing: Listing, name: str) -> StoredFile:
    """Read the header of a file.

    Raises:
        ModelLoadError: it cannot be read.
    """
    with listing.open_header(name) as (stream, size):
        return reading.read(stream, size, name, is_whole=listing.is_whole)


def settings(listing: Listing, name: str) -> dict[str, Any]:
    """Return the content of a configuration; empty where there is no such file.

    Raises:
        ModelLoadError: it is no JSON object.
    """
    if name not in listing.names:
        return {}
    try:
        content = documents.from_python_json(listing.text(name))
    except (documents.DocumentError, UnicodeError, json.JSONDecodeError) as error:
        raise reading.make_damaged_error(f"{listing.source}/{name}", str(error)) from error
    if not isinstance(content, dict):
        raise reading.make_damaged_error(f"{listing.source}/{name}", "it contains no settings")
    return content


def files_below(folder: str, named: Sequence[str], names: Sequence[str], index: str) -> list[str]:
    """Return the files that an index names, as paths of the listing.

    Raises:
        ModelLoadError: a name leads elsewhere, or there is no such file.
    """
    found = []
    for name in named:
        path = PurePosixPath(name)
        full = (PurePosixPath(folder) / path).as_posix()
        if path.is_absolute() or ".." in path.parts or any(letter in name for letter in "\\:\0"):
            problem = f"names a file outside of its folder: {name[:100]!r}"
            hint = "an index names files next to it; do not use this one"
        elif full not in names:
            problem = f"names {name[:100]!r}, and there is no such file"
            hint = "download the missing file, or read one file by itself: opcheck weights FILE"
        else:
            found.append(full)
            continue
        raise ModelLoadError(f"{PurePosixPath(index).name} {problem}", context=f"index {index}", hint=hint)
    return found


#: Bytes that a request asks for: most headers of safetensors files are shorter.
_BLOCK, _LARGEST = 1 << 16, 8 << 20
#: Bytes that may be requested of a file.
_MOST = 512 << 20

_OF_REPOSITORY = 2
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
        near = ", ".join(each for each in listing.names if each.endswith(reading.SUFFIXES))
        problem, hint = f"{parts[0]}/{parts[1]} has no file {file}", f"it has {near[:300] or 'no weights'}"
        raise ModelLoadError(problem, context=f"hub name {spec}", hint=hint)
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
        self._until = time.monotonic() + repository.FIRST_ANSWER
        name, revision, wait = self._name.repository, self._name.revision, repository.PATIENCE
        info = self._ask(lambda hub: hub.HfApi().model_info(name, revision=revision, timeout=wait))
        self._until = time.monotonic() + repository.WHOLE
        self._commit = str(info.sha)
        every = sorted(entry.rfilename for entry in info.siblings or ())
        self.names = [n for n in every if not n.startswith("/") and ".." not in n.split("/") and "\\" not in n]

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        hub = repository.import_hub(self.source)
        try:
            return repository.ask_hub(lambda: request(hub), self._until - time.monotonic())
        except OpcheckError:
            raise
        except Exception as error:  # huggingface_hub takes what a server sends as it comes
            if repository.is_unreachable(error):
                problem, context = f"the hub does not answer ({type_and_text(error)})", "is neither a file nor a folder"
                hint = "connect and try again, or name a file or a folder"
                raise ModelLoadError(problem, context=f"{self.source} {context} here", hint=hint) from error
            raise repository.refusal(error, self._name) from error

    def text(self, name: str) -> str:
        """Return a short text, which goes to the hub's own cache."""
        path = self._ask(lambda hub: hub.hf_hub_download(self._name.repository, name, revision=self._commit))
        return documents.read_text(Path(path), MOST_TEXT)

    @contextlib.contextmanager
    def open_header(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file by requests of ranges; its size comes with the first answer."""
        remote = self._ask(lambda hub: _RemoteFile(hub, self._name.repository, name, self._commit, self._until))
        yield open_fetched(remote.fetch, remote.size, _BLOCK), remote.size


Listing = FolderListing | HubListing


class _RemoteFile:
    """A file on a server that answers requests of ranges."""

    def __init__(self, hub: Any, name: str, file: str, commit: str, until: float) -> None:
        self._address = hub.hf_hub_url(name, file, revision=commit)
        self._until = until
        self._left, self._block = _MOST, _BLOCK
        self.size = self._start = 0
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
            size = min(max(count, self._block), self.size - offset)
            self._read = repository.ask_hub(lambda: self._request(offset, size), self._until - time.monotonic())
        at = offset - self._start
        return self._read[at : at + count]

    def _request(self, offset: int, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
            raise documents.DocumentError(f"its header is longer than {_MOST >> 20} MiB")
        utilities: Any = importlib.import_module("huggingface_hub.utils")
        headers = {**utilities.build_hf_headers(), "range": f"bytes={offset}-{offset + count - 1}"}
        with utilities.get_session().stream(
            "GET", self._address, headers=headers, timeout=repository.PATIENCE, follow_redirects=True
        ) as response:
            utilities.hf_raise_for_status(response)
            if response.status_code != _PARTIAL and (offset or response.status_code != _COMPLETE):
                raise documents.DocumentError("the server sends no ranges of files")
            total = response.headers.get("content-range", "").rpartition("/")[2]
            length = total or response.headers.get("content-length", "0")
            self.size = int(length) if length.isdigit() else 0
            content = b""
            for part in response.iter_bytes():
                content += part
                if len(content) >= count:
                    break
        return content[:count]


#: Nodes and values that are looked at.
_MOST_NODES, _MOST_VALUES = 20_000, 64
_MOST_NODE_TEXT = 500
#: stated_dtypes.yaml: what settings of nodes and names of files state.
_STATED: dict[str, Any] = load_shipped(__file__, "stated_dtypes.yaml")
_SETTINGS: dict[str, str] = _STATED["settings"]
_GGUF = re.compile(r"(I?Q\d_(?:[KS01]|NL|XS|XXS)|TQ\d_0|BF16|F16|F32|MXFP4)", re.IGNORECASE)
_PLAIN = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class NamedFile(NamedTuple):
    """A file of weights that a node loads."""

    name: str
    #: the type of the node
    node: str
    #: that the node casts to when it loads; empty: that of the file
    dtype: str = ""


def is_workflow(content: Any) -> bool:
    """Return whether a document is a workflow."""
    return any(True for _ in _nodes(content))


def named_files(content: Any) -> tuple[NamedFile, ...]:
    """Return the files that the nodes name, each once, in their order."""
    files: dict[tuple[str, str], NamedFile] = {}
    for kind, values in _nodes(content):
        texts = [text for text in _texts(values) if len(text) <= _MOST_NODE_TEXT]
        dtype = next((_SETTINGS[text] for text in texts if text in _SETTINGS), "")
        for text in texts:
            if text.lower().endswith((*reading.SUFFIXES, ".sft")) and "\n" not in text:
                name = text.replace("\\", "/")
                files.setdefault((name, dtype), NamedFile(name, kind, dtype))
    return tuple(files.values())


def _nodes(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the type and the values of each node."""
    if not isinstance(content, dict):
        return
    if isinstance(content.get("nodes"), list):
        graphs = content.get("definitions")
        groups = graphs.get("subgraphs", ()) if isinstance(graphs, dict) else ()
        lists = (group.get("nodes") for group in (content, *groups) if isinstance(group, dict))
        nodes = [node for each in lists if isinstance(each, list) for node in each if isinstance(node, dict)]
        for node in nodes[:_MOST_NODES]:
            # Nodes that are muted or bypassed load nothing (modes 2 and 4 of LiteGraph).
            if isinstance(node.get("type"), str) and node.get("mode") not in {2, 4}:
                yield node["type"], node.get("widgets_values")
        return
    prompt = content.get("prompt", content)
    for node in [*prompt.values()][:_MOST_NODES] if isinstance(prompt, dict) else ():
        if isinstance(node, dict) and isinstance(node.get("class_type"), str):
            yield node["class_type"], node.get("inputs")


def _texts(values: Any) -> Iterable[str]:
    """Yield the texts of a node's values, one level deep."""
    items = values.values() if isinstance(values, dict) else values
    for item in [*items][:_MOST_VALUES] if isinstance(items, (list, type({}.values()))) else ():
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from (each for each in [*item.values()][:_MOST_VALUES] if isinstance(each, str))


def stated_by(name: str) -> tuple[str, str]:
    """Return the method and the dtype that a file's name states; empty texts where it states none."""
    plain = PurePosixPath(name).name
    if plain.lower().endswith(".gguf"):
        match = _GGUF.search(plain)
        kind = match[1].upper() if match else ""
        return "", _PLAIN.get(kind, kind)
    for sign in _STATED["names"]:
        if re.search(sign["pattern"], plain, re.IGNORECASE):
            return sign.get("method", ""), sign.get("dtype", "")
    return "", ""


def format_of(name: str) -> str:
    """Return the format that a file's suffix states."""
    suffix = PurePosixPath(name.lower()).suffix.removeprefix(".")
    return {"sft": "safetensors", "pth": "pt", "ckpt": "pt", "bin": "pt"}.get(suffix, suffix)
