"""A pytest plugin: torch behaves as if the machine had one CUDA GPU, and every device that is asked for is counted.

Tensors stay on the CPU; what is asked of ``cuda`` is computed there.  The counts go to the file that ``FAKE_CUDA_LOG``
names.  ``prove_fixes.py`` compares them before and after a fix.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.overrides import TorchFunctionMode

COUNTS: Counter[str] = Counter()
Answer = bool | int | str | tuple[int, ...] | None
ANSWERS = msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes(), type=dict[str, Answer])


class _OnCpu(TorchFunctionMode):
    """Counts the devices that a call names, and computes on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            COUNTS["cuda"] += 1
            return args[0]
        return func(*map(_on_cpu, args), **{key: _on_cpu(value) for key, value in (kwargs or {}).items()})


def _on_cpu(value: object) -> object:
    is_device = isinstance(value, torch.device)
    text = str(value) if is_device else value
    if not isinstance(text, str) or text.partition(":")[0] not in {"cuda", "mps", "cpu"}:
        return value
    COUNTS[text] += 1
    return torch.device("cpu") if is_device else "cpu"


def pytest_configure() -> None:
    """Put the GPU in place before the first test module is imported."""
    for name, answer in ANSWERS.items():
        setattr(torch.cuda, name, lambda *_args, _answer=answer, _name=name, **_kwargs: _answered(_name, _answer))
    torch.set_default_device = lambda device: COUNTS.update([str(device)])
    _OnCpu().__enter__()  # type: ignore[no-untyped-call]  # torch does not type it


def _answered(name: str, answer: object) -> object:
    # How often a program asks is its own affair; a fix may ask once more.
    if answer is None:
        COUNTS[f"torch.cuda.{name}"] += 1
    return answer


def pytest_unconfigure() -> None:
    """Write the counts."""
    Path(os.environ["FAKE_CUDA_LOG"]).write_text(json.dumps(COUNTS, sort_keys=True), encoding="utf-8")
