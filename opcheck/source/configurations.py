"""Checks YAML files: the devices in configurations of programs, and the packages of conda environments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.vocabulary import Severity
from opcheck.model.records import Record
from opcheck.source import scan_requirements
from opcheck.source.call_tables import read_words
from opcheck.source.rule import Hit, ScanRule
from opcheck.source.rules import BY_ID
from opcheck.source.rules.lacking import find_missing_packages
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


class _Setting(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What keys and values a rule names: an entry of ``configurations.toml``."""

    rule: str
    key: str
    value: str
    message: str
    hint: str
    severity: Severity | None = None
    beside: frozenset[str] = frozenset()


_SETTINGS = msgspec.convert(
    documents.from_toml(documents.read_text(Path(__file__).with_suffix(".toml")))["settings"],
    tuple[_Setting, ...],
)
#: Accelerators other than MPS: a strategy of several processes is then no finding.
_NOT_MPS = {"cpu", "cuda", "tpu", "hpu"}


def check_configuration(text: str, path: Path) -> Iterator[tuple[ScanRule, Hit]]:
    """Yield the findings in a YAML file, each line by itself."""
    lines = text.splitlines()
    if path.stem.lower().startswith(("environment", "conda")):
        yield from ((find_missing_packages, hit) for hit in _check_packages(lines))
    for number, key, value, block in [*_settings(lines)]:
        for each in _SETTINGS:
            is_named = re.fullmatch(each.key, key.rpartition(".")[2])
            if not (is_named and re.fullmatch(each.value, value)) or (
                each.beside and each.beside.isdisjoint(block)
            ):
                continue
            if each.rule == find_nccl.id and block.get("accelerator") in _NOT_MPS:
                continue
            yield (
                BY_ID[each.rule],
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
