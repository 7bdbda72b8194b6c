"""A hub on the loopback address: repositories that are dictionaries of files, and the errors of a real one."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Bytes of each tensor's values: a test fails if one of them is sent.
VALUES = b"\xff"


def safetensors(**tensors: tuple[str, list[int]]) -> bytes:
    """A file with these tensors (dtype, shape), whose values are never to be read."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()
    }
    content = json.dumps(header).encode()
    # Longer than the part of a file that huggingface_hub reads at once.
    return struct.pack("<Q", len(content)) + content + VALUES * 200_000


@dataclass
class Hub:
    """The repositories by name, and what was asked."""

    repositories: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: name -> status and error code that the hub answers with
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    #: bytes of answers
    sent: int = 0
    address: str = ""

    def commit(self, name: str) -> str:
        """The commit of a repository's present content."""
        texts = {path: _bytes(content).hex() for path, content in self.repositories[name].items()}
        return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:40]


def _bytes(content: Any) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


@contextmanager
def serving(**repositories: dict[str, Any]) -> Iterator[Hub]:  # noqa: C901 - one nested class
    """Serve repositories; ``org__name`` is ``org/name``."""
    hub = Hub({name.replace("__", "/"): files for name, files in repositories.items()})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

        def _answer(self, *, body: bool) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            parts = self.path.strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            name = "/".join(parts[2:4] if is_api else parts[:2])
            if name in hub.refusals:
                status, code = hub.refusals[name]
                self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, body=body)
            elif name not in hub.repositories:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body=body)
            elif is_api:
                self._model(name, parts[4:], body=body)
            else:
                self._file(name, parts[3], "/".join(parts[4:]), body=body)

        def _model(self, name: str, rest: list[str], *, body: bool) -> None:
            commit = hub.commit(name)
            if rest[1:] and rest[1] not in ("main", commit):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body=body)
                return
            siblings = [{"rfilename": path} for path in hub.repositories[name]]
            content = {"id": name, "modelId": name, "sha": commit, "siblings": siblings}
            self._send(200, json.dumps(content).encode(), {}, body=body)

        def _file(self, name: str, revision: str, path: str, *, body: bool) -> None:
            commit = hub.commit(name)
            if path not in hub.repositories[name] or revision not in ("main", commit):
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, body=body)
                return
            content = _bytes(hub.repositories[name][path])
            headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit}
            asked = self.headers.get("Range", "").removeprefix("bytes=")
            if not asked:
                self._send(200, content, headers, body=body)
                return
            first, _, last = asked.partition("-")
            part = content[int(first) : int(last) + 1]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            self._send(206, part, headers, body=body)

        def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content)
                hub.sent += len(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    # shutdown() waits for the end of an interval, which is half a second by default.
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
