"""An emulated Mac that differs from the predictions in 20 ways, of all kinds that observe-all can find."""

from __future__ import annotations

import shutil
from pathlib import Path

from opcheck.data.registrations import FILES, load, shipped_directory
from opcheck.data.wheels.release import ReleaseFacts, merge_release, write_changed

MAC = "2.13/15"
#: overload -> its value in the lists of the planted Mac; the shipped lists have kernels for most of them
REGISTRATIONS = {
    "mish": "cpu_only",
    "mish.out": "cpu_only",
    "glu": "cpu_only",
    "glu.out": "cpu_only",
    "logaddexp": "cpu_only",
    "logaddexp.out": "cpu_only",
    "argmax": "cpu_only",
    "argmax.out": "cpu_only",
    "softplus": "cpu_fallback",
    "softplus.out": "cpu_fallback",
    "avg_pool2d": "cpu_fallback",
    "avg_pool2d.out": "cpu_fallback",
    "native_group_norm": "cpu_fallback",
    "adaptive_max_pool3d.out": "kernel",
    "mode": "kernel",
    "linalg_svd": "kernel",
    "special_airy_ai.out": "kernel",
}
#: operators whose results are wrong, that raise, and one that ends the process
WRONG = (
    *("aten::erfinv", "aten::rsqrt", "aten::cumsum", "aten::log1p", "aten::sinh"),
    *("?aten::hardswish", "?aten::_prelu_kernel", "?aten::flip"),
    "!aten::tril",
)
MODELS = (
    "torch.nn:Mish",
    "torch.nn:GLU",
    "torch.nn:Hardswish",
    "torch.nn:PReLU",
    "torch.nn:Softplus",
    "torch.nn:AvgPool2d",
    "torch.nn:GroupNorm",
    "torch.nn:AdaptiveMaxPool3d",
    "torch.nn:Linear",
    "torch.nn:Embedding",
)
OPS = (*("erfinv", "rsqrt", "cumsum", "tril", "argmax", "mode", "linalg.svd", "special.airy_ai"), *("abs", "where"))
KERNELS = ("log1p", "sinh", "exp")
PROGRAMS = {
    "flipped.py": "import torch\nx = torch.arange(6.0, device='mps').reshape(2, 3)\nprint((x * 2).flip(0).sum().item())\n",
    "logits.py": "import torch\na, b = torch.ones(3, device='mps'), torch.zeros(3, device='mps')\nprint(torch.logaddexp(a, b).mean().item())\n",
}
#: (op, predicted, observed)
CONTRADICTIONS = {
    ("aten::mish", "native", "fallback"),
    ("aten::glu", "native", "fallback"),
    ("aten::logaddexp", "native", "fallback"),
    ("aten::argmax", "native", "fallback"),
    ("aten::hardswish", "native", "unsupported"),
    ("aten::_prelu_kernel", "native", "unsupported"),
    ("aten::flip", "native", "unsupported"),
    ("aten::softplus", "native", "fallback"),
    ("aten::avg_pool2d", "native", "fallback"),
    ("aten::native_group_norm", "native", "fallback"),
    ("aten::adaptive_max_pool3d", "fallback", "native"),
    ("aten::mode", "fallback", "native"),
    ("aten::linalg_svd", "fallback", "native"),
    ("aten::special_airy_ai", "fallback", "native"),
    ("aten::erfinv", "native", "wrong"),
    ("aten::rsqrt", "native", "wrong"),
    ("aten::cumsum", "native", "wrong"),
    ("torch.tril", "native", "aborts"),
    ("kernel log1p", "right", "wrong"),
    ("kernel sinh", "right", "wrong"),
}


def planted_lists(folder: Path) -> Path:
    """Copy the shipped lists with these registrations in place of those of 2.13."""
    copy = folder / "planted"
    shutil.copytree(shipped_directory(), copy, ignore=shutil.ignore_patterns("extracted", "opinfo"))
    lists = load(shipped_directory())
    columns = {key: dict(lists.operators("2.13", key)) for key in FILES}
    columns["MPS"].update({f"aten::{name}": value for name, value in REGISTRATIONS.items()})
    facts = ReleaseFacts(release=lists.release("2.13"), columns=columns)
    write_changed(merge_release(facts, copy), copy)
    return copy
