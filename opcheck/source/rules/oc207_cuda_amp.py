"""OC207: mixed precision for CUDA only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule, argument

_AUTOCAST = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
_SCALER = {"torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler", "torch.GradScaler"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Autocast and GradScaler of CUDA, unless they are turned off."""
    if not isinstance(node, ast.Call):
        return
    name = scanned.dotted(node.func)
    last = name.rpartition(".")[2]
    if last not in {"autocast", "GradScaler"} or not name.startswith("torch."):
        return
    enabled = argument(node, None, "enabled")
    if enabled is not None and scanned.mac.truth(enabled) is False:
        return
    if name.startswith("torch.cuda.amp."):
        what = f"torch.cuda.amp.{last}"
    elif name in _AUTOCAST and scanned.mac.cuda(argument(node, 0, "device_type")):
        what = 'torch.autocast("cuda")'
    elif name in _SCALER and _scales_cuda(node, scanned):
        what = 'torch.amp.GradScaler("cuda")'
    else:
        return
    yield Hit(
        node=node,
        message=f"{what} turns itself off without CUDA: on a Mac nothing is cast or scaled",
        hint=f'torch.amp.{last}("mps"), or with the type of the device that was chosen',
    )


def _scales_cuda(node: ast.Call, scanned: Scanned) -> bool:
    device = argument(node, 0, "device")
    return device is None or scanned.mac.cuda(device) is not None


RULE = ScanRule(
    id="OC207",
    severity="warning",
    nodes=(ast.Call,),
    words=("autocast", "GradScaler"),
    check=check,
)
