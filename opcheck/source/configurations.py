"""Checks YAML files: the devices in configurations of programs, and the packages of conda environments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from opcheck.common.vocabulary import Severity
from opcheck.source import scan_requirements
from opcheck.source.call_tables import read_words
from opcheck.source.rule import Hit, ScanRule
from opcheck.source.rules.lacking import FLASH, find_missing_packages
from opcheck.source.rules.named_devices import find_cuda_defaults
from opcheck.source.rules.processes import find_nccl

#: A key and its value, in block style or inside of ``{...}``: ``model.device: cuda:0``.
_ENTRY = re.compile(
    r"""(?:^\s*(?:-\s+)*|[{,]\s*)["']?([\w.-]+)["']?\s*:\s+["']?([\w.:-]+)["']?\s*(?=$|[,}#])"""
)
_DECIDES = "the program that reads the file decides what its values mean"
#: The line above a text of several lines, which is no setting.
_TEXT = re.compile(r"[:-]\s+[|>][+-]?\d?[+-]?\s*(#.*)?$")
_PACKAGE = re.compile(
    r"""^\s*-\s+["']?(?:[\w./-]+::)?([\w.-]+)\s*([=<>!~ ][^"'#]*)?["']?\s*(#.*)?$"""
)
_PIP = re.compile(r"^(\s*)-\s+pip\s*:\s*$")
_OF_CUDA = read_words("conda_of_cuda")


class _Setting(NamedTuple):
    """What keys and values a rule names."""

    rule: ScanRule
    key: re.Pattern[str]
    value: re.Pattern[str]
    message: str
    hint: str
    severity: Severity | None = None
    #: the same block must have a key of these
    beside: frozenset[str] = frozenset()


_SETTINGS = (
    _Setting(
        find_cuda_defaults, re.compile(r"(?:.*[_-])?(?:device|map_location|accelerator)(?:_type)?"),
        re.compile(r"cuda(?::\d+)?"), "the setting {key} is {value!r}: a Mac needs another value",
        'a value such as "auto" that lets the program choose what the machine has',
    ),
    # What hydra calls.
    _Setting(
        find_cuda_defaults, re.compile("_target_"), re.compile(r"torch\.cuda\.[\w.]+"),
        "{value} is called, which works with CUDA only",
        "the equivalent in torch.amp or torch.mps, or a target that the program chooses",
    ),
    _Setting(
        find_nccl, re.compile("strategy"), re.compile(r"(?:ddp|fsdp|deepspeed)\w*"),
        "Lightning has no strategy {value} on MPS",
        "strategy: auto, which uses one process for one GPU", "warning",
    ),
    _Setting(
        find_nccl, re.compile("devices"), re.compile(r"[2-9]|[1-9]\d+"),
        "{value} devices are requested, and a Mac has a single GPU",
        "devices: auto takes the devices of the machine", "warning",
        frozenset({"accelerator", "strategy", "num_nodes"}),
    ),
    _Setting(
        find_missing_packages, re.compile("_?attn_implementation"), re.compile(FLASH),
        "{value} needs flash-attn, which has no wheel for macOS", "attn_implementation: sdpa", "warning",
    ),
    _Setting(
        find_missing_packages, re.compile("load_in_[48]bit"), re.compile("[Tt]rue"),
        "{key} needs bitsandbytes, whose kernels are written for CUDA", "weights in float16 or bfloat16", "warning",
    ),
)  # fmt: skip
#: Accelerators other than MPS: a strategy of several processes is then no finding.
_NOT_MPS = {"cpu", "cuda", "tpu", "hpu"}


def check_configuration(text: str, path: Path) -> Iterator[tuple[ScanRule, Hit]]:
    """Yield the findings in a YAML file, each line by itself."""
    lines = text.splitlines()
    if path.stem.lower().startswith(("environment", "conda")):
        yield from ((find_missing_packages, hit) for hit in _check_packages(lines))
    for number, key, value, block in [*_settings(lines)]:
        for each in _SETTINGS:
            is_named = each.key.fullmatch(key.rpartition(".")[2]) and each.value.fullmatch(value)
            if not is_named or (each.beside and each.beside.isdisjoint(block)):
                continue
            if each.rule is find_nccl and block.get("accelerator") in _NOT_MPS:
                continue
            yield (
                each.rule,
                Hit(
                    node=ast.Pass(lineno=number, end_lineno=number, col_offset=0),
                    message=each.message.format(key=key, value=value),
                    hint=each.hint,
                    severity=each.severity,
                    no_fix=_DECIDES,
                ),
            )


def _settings(lines: Sequence[str]) -> Iterator[tuple[int, str, str, dict[str, str]]]:
    """Yield the line, the key and the value of each setting outside of longer texts, and all settings of its block."""
    text_in: int | None = None
    blocks: list[tuple[int, dict[str, str]]] = []
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or (text_in is not None and indent > text_in):
            continue
        text_in = indent if _TEXT.search(line) else None
        while blocks and blocks[-1][0] > indent:
            blocks.pop()
        if not blocks or blocks[-1][0] < indent:
            blocks.append((indent, {}))
        for key, value in _ENTRY.findall(line):
            blocks[-1][1][key.rpartition(".")[2]] = value
            yield number, key, value, blocks[-1][1]


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
            for text, _, severity in scan_requirements.in_lines(listed):
                yield from scan_requirements.judge(text, number, severity)
            continue
        package = _PACKAGE.match(line)
        if package and (package[1].lower() in _OF_CUDA or "cuda" in (package[2] or "").lower()):
            yield Hit(
                node=ast.Pass(lineno=number, end_lineno=number, col_offset=0),
                message=f"{package[1]} is for CUDA and has no build for macOS: conda cannot create this environment",
                hint="write another environment for a Mac, without the package",
                no_fix="conda has no condition on the system in this file",
            )
