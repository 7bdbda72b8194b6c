"""Checks YAML files: the devices in configurations of programs, and the packages of conda environments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from opcheck.source import requirements
from opcheck.source.rule import Hit, ScanRule
from opcheck.source.rules.lacking import find_missing_packages
from opcheck.source.rules.named_devices import find_cuda_defaults
from opcheck.source.tables import read_words

#: A key with a device of CUDA, in block style or inside of ``{...}``: ``model.device: cuda:0``.
_DEVICE = re.compile(
    r"""(?:^\s*(?:-\s+)*|[{,]\s*)["']?((?:[\w.-]*[._-])?(?:device|map_location|accelerator)(?:_type)?)["']?\s*:\s+"""
    r"""["']?(cuda(?::\d+)?)["']?\s*(?=$|[,}#])"""
)
#: What hydra calls: ``_target_: torch.cuda.amp.GradScaler``.
_TARGET = re.compile(
    r"""^\s*(?:-\s+)*["']?_target_["']?\s*:\s+["']?(torch\.cuda\.[\w.]+)["']?\s*(?=$|#)"""
)
#: The line above a text of several lines, which is no setting.
_TEXT = re.compile(r"[:-]\s+[|>][+-]?\d?[+-]?\s*(#.*)?$")
_PACKAGE = re.compile(
    r"""^\s*-\s+["']?(?:[\w./-]+::)?([\w.-]+)\s*([=<>!~ ][^"'#]*)?["']?\s*(#.*)?$"""
)
_PIP = re.compile(r"^(\s*)-\s+pip\s*:\s*$")
_OF_CUDA = read_words("conda_of_cuda")


def check_configuration(text: str, path: Path) -> Iterator[tuple[ScanRule, Hit]]:
    """Yield the findings in a YAML file, each line by itself."""
    lines = text.splitlines()
    if path.stem.lower().startswith(("environment", "conda")):
        yield from ((find_missing_packages, hit) for hit in _check_packages(lines))
    for number, line in _settings(lines):
        where = ast.Pass(lineno=number, end_lineno=number, col_offset=0)
        for key, device in _DEVICE.findall(line):
            yield (
                find_cuda_defaults,
                Hit(
                    node=where,
                    message=f"the setting {key} is {device!r}: on a Mac it must be given",
                    hint='a value such as "auto", for which the program chooses what the machine has',
                    no_fix="the program that reads the file decides what its values mean",
                ),
            )
        for target in _TARGET.findall(line):
            yield (
                find_cuda_defaults,
                Hit(
                    node=where,
                    message=f"{target} is called, which is for CUDA alone",
                    hint="the same of torch.amp or torch.mps, or a target that the program chooses",
                    no_fix="the program that reads the file decides what its values mean",
                ),
            )


def _settings(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not inside of a text of several lines, with their numbers."""
    text_in: int | None = None
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if text_in is not None and (indent > text_in or not line.strip()):
            continue
        text_in = indent if _TEXT.search(line) else None
        yield number, line


def _check_packages(lines: Sequence[str]) -> Iterator[Hit]:
    """The findings in the environment of conda, and in its list for pip."""
    pip: int | None = None
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if begin := _PIP.match(line):
            pip = len(begin[1])
        elif pip is not None and line.strip() and indent <= pip:
            pip = None
        elif pip is not None:
            listed = [line.strip().removeprefix("-").strip().strip("\"'")]
            for text, _, severity in requirements.in_lines(listed):
                yield from requirements.judge(text, number, severity)
            continue
        package = _PACKAGE.match(line)
        if package and (package[1].lower() in _OF_CUDA or "cuda" in (package[2] or "").lower()):
            yield Hit(
                node=ast.Pass(lineno=number, end_lineno=number, col_offset=0),
                message=f"{package[1]} is for CUDA, and has no build for macOS: conda cannot make this environment",
                hint="another environment for a Mac, without it",
                no_fix="conda has no condition on the system in this file",
            )
