"""Tensors on their way between the CPU, files, NumPy and the GPU."""

import ast
from collections.abc import Iterator

from opcheck.source.devices import torch_name
from opcheck.source.edits import Fix, insert_after, replace
from opcheck.source.rule import Hit, Scanned, argument, chain, hit, method, rule

# -- OC213: pinned memory --------------------------------------------------------------------------


@rule("OC213")
def find_pinned_memory(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``pin_memory=True`` in a call, and ``.pin_memory()``."""
    asked = argument(node, None, "pin_memory")
    if asked is not None and scanned.mac.constant(asked) is True:
        called = scanned.dotted_name(node.func).rpartition(".")[2] or method(node)
        called = called or getattr(node.func, "id", "")
        loader = "; a DataLoader skips it on a Mac, and warns" * called.endswith("DataLoader")
        yield hit("pinned batches", asked, fix=_fix_pinning(asked, scanned), loader=loader)
    elif method(node) == "pin_memory" and not node.args and not scanned.dotted_name(node.func):
        yield hit("pinned tensor", node)


def _fix_pinning(asked: ast.expr, scanned: Scanned) -> Fix | None:
    torch = torch_name(scanned)
    is_constant = isinstance(asked, ast.Constant) and torch
    return Fix((replace(asked, f"{torch}.cuda.is_available()"),)) if is_constant else None


# -- OC219: .numpy() on a tensor that is on MPS ----------------------------------------------------

_LEAVES = {"cpu", "numpy", "tolist", "item"}


@rule("OC219")
def find_numpy_of_mps(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.numpy()`` where the same expression put the tensor on MPS."""
    if method(node) != "numpy" or scanned.dotted_name(node.func):
        return
    for call in chain(node.func):
        if method(call) in _LEAVES:
            return
        targets = [argument(call, None, "device")]
        if method(call) == "to":
            targets += call.args[:1]
        devices = [scanned.mac.constant(value) for value in targets if value is not None]
        if any(isinstance(device, str) for device in devices):
            if any(str(device).startswith("mps") for device in devices):
                yield hit("numpy", node)
            return


# -- OC227: torch.load without map_location --------------------------------------------------------


@rule("OC227")
def find_unmapped_loads(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls of ``torch.load`` that do not say where the tensors go."""
    if scanned.dotted_name(node.func) != "torch.load":
        return
    unpacks = any(word.arg is None for word in node.keywords)
    if argument(node, 1, "map_location") is not None or unpacks:
        return
    if not node.args or any(isinstance(part, ast.Starred) for part in node.args):
        return
    yield hit("loads from cuda", node, fix=_fix_load(node, scanned))


def _fix_load(node: ast.Call, scanned: Scanned) -> Fix | None:
    """To the CPU where there is no CUDA; with CUDA the tensors come to where they were saved, as before."""
    torch = torch_name(scanned)
    place = f'None if {torch}.cuda.is_available() else "cpu"'
    edit = insert_after(node.args[0], f", map_location={place}")
    return Fix((edit,), "unsafe") if torch else None
