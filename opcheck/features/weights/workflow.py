"""Finds the files of weights that a workflow of ComfyUI names, in the form of its editor and of its API."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from opcheck.common.yaml_text import load_shipped
from opcheck.weights import reading

#: Nodes and values that are looked at.
_MOST_NODES, _MOST_VALUES = 20_000, 64
_MOST_TEXT = 500
#: stated_dtypes.yaml: what settings of nodes and names of files state.
_STATED: dict[str, Any] = load_shipped(Path(__file__).with_name("stated_dtypes.yaml"))
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
    found: dict[tuple[str, str], NamedFile] = {}
    for kind, values in _nodes(content):
        texts = [text for text in _texts(values) if len(text) <= _MOST_TEXT]
        dtype = next((_SETTINGS[text] for text in texts if text in _SETTINGS), "")
        for text in texts:
            if text.lower().endswith((*reading.SUFFIXES, ".sft")) and "\n" not in text:
                name = text.replace("\\", "/")
                found.setdefault((name, dtype), NamedFile(name, kind, dtype))
    return tuple(found.values())


def _nodes(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the type and the values of each node."""
    if not isinstance(content, dict):
        return
    if isinstance(content.get("nodes"), list):
        graphs = content.get("definitions")
        groups = graphs.get("subgraphs", ()) if isinstance(graphs, dict) else ()
        inner = [node for group in groups if isinstance(group, dict) for node in _list_nodes(group)]
        for node in [*_list_nodes(content), *inner][:_MOST_NODES]:
            # Nodes that are muted or bypassed load nothing (modes 2 and 4 of LiteGraph).
            if isinstance(node.get("type"), str) and node.get("mode") not in {2, 4}:
                yield node["type"], node.get("widgets_values")
        return
    prompt = content.get("prompt", content)
    nodes = prompt.values() if isinstance(prompt, dict) else ()
    for node in [*nodes][:_MOST_NODES]:
        if isinstance(node, dict) and isinstance(node.get("class_type"), str):
            yield node["class_type"], node.get("inputs")


def _list_nodes(graph: dict[str, Any]) -> list[dict[str, Any]]:
    nodes = graph.get("nodes")
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


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
