"""Checks files next to the source: requirements, configurations in YAML, environments of conda, Dockerfiles."""

import ast
import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from opcheck.common import documents
from opcheck.common.documents import from_toml
from opcheck.common.python_source import split_lines
from opcheck.common.versions import Version
from opcheck.common.vocabulary import Severity
from opcheck.data.packages import PACKAGES
from opcheck.model.records import Record
from opcheck.source import source
from opcheck.source.call_tables import read_words
from opcheck.source.edits import Edit, Fix
from opcheck.source.rule import Hit, ScanRule
from opcheck.source.rules import BY_ID
from opcheck.source.rules.lacking import GPU_CONTAINERS, describe, find_missing_packages
from opcheck.source.rules.processes import find_nccl

#: The values of markers on a Mac; the others are as on this machine.
_MAC = {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64", "os_name": "posix"}
#: The libraries of CUDA, one package each.
_CUDA_BUILD = re.compile(r"\+cu\d+")
#: The packages whose plain releases have wheels for macOS.
_OF_TORCH = {"torch", "torchaudio", "torchvision"}
_NVIDIA = re.compile(r"nvidia-[a-z-]+-cu\d+")
#: A text in quotes; double quotes may contain escapes. A text that does not end extends to the end of
#: its line: otherwise a comment of a million quotes would take hours.
_QUOTED = re.compile(r"""\"((?:[^"\\]|\\.)*)(?:\"|\\?$)|'([^']*)(?:'|$)""")
_COMMENT = re.compile(r"(^|\s)#.*$")


def check(text: str, lines: list[str], *, is_toml: bool) -> Iterator[Hit]:
    """Return the findings in a requirements.txt, or in a pyproject.toml; those in extras are warnings.

    Raises:
        ValueError: it is not TOML.
    """
    for wanted, number, severity in in_pyproject(text) if is_toml else in_lines(lines):
        for hit in judge(wanted, number, severity):
            yield replace(hit, fix=_fix(wanted, lines[number - 1], number, is_quoted=is_toml))


def in_lines(lines: list[str]) -> Iterator[tuple[str, int, Severity]]:
    """Yield the requirements in a requirements.txt: text, line, and severity if it is absent."""
    for number, line in enumerate(lines, 1):
        text = _COMMENT.sub("", line).strip()
        # Below it are options of the requirement, such as hashes.
        if text.endswith("\\") and "".join(lines[number : number + 1]).lstrip().startswith("--"):
            text = text[:-1].rstrip()
        if text and not text.startswith("-"):
            yield text.split(" --")[0], number, "error"


def in_pyproject(text: str) -> Iterator[tuple[str, int, Severity]]:
    """Yield the requirements in a pyproject.toml; a program still runs without its extras.

    Raises:
        ValueError: it is not TOML, or its dependencies are not what they should be.
    """
    project = from_toml(text).get("project", {})
    _expect(project, dict, "project is not a table")
    extras = project.get("optional-dependencies", {})
    _expect(extras, dict, "project.optional-dependencies is not a table")
    lines = _find_quotes(text)
    listed: list[tuple[str, Any, Severity]] = [("dependencies", project.get("dependencies", []), "error")]
    listed += [(f"optional-dependencies.{extra}", extras[extra], "warning") for extra in extras]
    for key, wanted, severity in listed:
        _expect(wanted, list, f"project.{key} is not a list")
        for requirement in wanted:
            _expect(requirement, str, f"project.{key} does not contain texts alone")
            yield requirement, lines.get(requirement, 1), severity


def _expect(value: object, kind: type, message: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(message)  # noqa: TRY004  (of a file, as all errors of this reader)


def _find_quotes(text: str) -> dict[str, int]:
    """The first line of each text in quotes."""
    lines: dict[str, int] = {}
    for number, line in enumerate(split_lines(text), 1):
        for double, single in _QUOTED.findall(line):
            lines.setdefault(double.replace('\\"', '"') or single, number)
    return lines


def judge(text: str, line: int, severity: Severity) -> Iterator[Hit]:
    """The finding about a requirement that a Mac would install and that has no wheel for it."""
    try:
        yield from _judge(text, line, severity)
    except (ValueError, RecursionError):
        # An address, pip's own syntax, or a version of 5,000 digits: there is no finding.
        return


def _judge(text: str, line: int, severity: Severity) -> Iterator[Hit]:
    wanted = Requirement(text)
    name = canonicalize_name(wanted.name)
    package = PACKAGES.load().by_name.get(name)
    build = next((spec.version for spec in wanted.specifier if _CUDA_BUILD.search(spec.version)), "")
    if package is None and not _NVIDIA.fullmatch(name) and not build:
        return
    if wanted.marker is not None and not wanted.marker.evaluate(_MAC):
        return
    if package is not None and package.since and not build and _may_be(wanted, package.since):
        return
    where = ast.Pass(lineno=line, end_lineno=line, col_offset=0)
    described = describe(name, package) if package else f"{name} is a library of CUDA"
    if build:
        described = f"{name} {build} is a build for CUDA"
    is_plain = bool(build) and name in _OF_TORCH
    instead = f"; instead: {package.instead}" if package else f"; on a Mac {_CUDA_BUILD.sub('', build)}" * is_plain
    is_built = package is not None and package.sources and not build
    fails = package is not None and package.fails and not build
    outcome = f": pip {'must build it' if is_built else 'does not install it'} on a Mac"
    yield Hit(
        node=where,
        severity="warning" if is_built or fails else severity,
        message=described if fails else f"{described}{outcome}",
        hint=f'for other machines only: {wanted.name}; sys_platform != "darwin"{instead}',
        no_fix=f"a person must look up whether this version of {name} has a plain wheel for macOS"
        * (bool(build) and not is_plain),
    )


def _fix(text: str, line: str, number: int, *, is_quoted: bool) -> Fix | None:
    """A marker that leaves the requirement out on macOS; elsewhere pip installs what it did before.

    Of a build of torch for CUDA a Mac gets the same version from the index.
    """
    wanted = Requirement(text)
    start = line.find(text)
    name = canonicalize_name(wanted.name)
    package = PACKAGES.load().by_name.get(name)
    build = _CUDA_BUILD.search(text)
    if package is not None and (package.sources or package.fails):
        return None  # a Mac that has it keeps it: the program may ask before it calls it
    if build and package is None and name not in _OF_TORCH:
        return None
    if wanted.url or start < 0 or line.count(text) > 1 or "\\" in text or " --" in line:
        return None
    before = line[start - 1 : start]
    if is_quoted and before not in {"'", '"'}:
        return None
    quote = "'" if is_quoted and before == '"' else '"'
    plain, _, old = text.partition(";")
    condition = f"({old.strip()}) and sys_platform" if wanted.marker is not None else "sys_platform"
    written = f"{plain.rstrip()}; {condition} != {quote}darwin{quote}"
    if build and name in _OF_TORCH:
        separator = ", " if line[:start].strip("\"' \t") else f",\n{line[: start - 1]}"
        between = f"{before}{separator}{before}" if is_quoted else "\n"
        of_mac = f"{_CUDA_BUILD.sub('', plain).rstrip()}; {condition} == {quote}darwin{quote}"
        written = f"{of_mac}{between}{written}"
    column = len(line[:start].encode())
    return Fix((Edit(number, column, number, column + len(text.encode()), written),))


def _may_be(wanted: Requirement, since: str) -> bool:
    """Return whether pip, which takes the newest allowed version, may choose a version with a wheel."""
    newer = (since, f"{since}.1", f"{since}.999", "999")
    return any(wanted.specifier.contains(version) for version in newer)


# -- the releases of torch that a project allows ----

#: Folders above a source that are looked at, up to the root of its repository.
_DEEPEST = 8
#: So many requirement files of a folder are read.
_MOST = 20
#: The release lines that a specifier may allow; later ones have all that a fix writes.
_LINES = (*(Version(1, minor) for minor in range(8, 14)), *(Version(2, n) for n in range(40)))
_PATCHES = range(4)


def allowed_torch(folder: Path) -> tuple[Version, Version] | None:
    """Return the oldest and the newest release line that the nearest requirement files allow; None without a pin."""
    for each in (folder.absolute(), *folder.absolute().parents[:_DEEPEST]):
        lines = [line for text in _requirements(each) for line in [_lines(text)] if line]
        if lines:
            return max(line[0] for line in lines), min(line[-1] for line in lines)
        if (each / ".git").exists():
            break
    return None


def _requirements(folder: Path) -> Iterator[str]:
    for path in [*sorted(folder.glob("requirements*.txt"))[:_MOST], folder / "pyproject.toml"]:
        # The scan itself reports a requirement file that cannot be read.
        with contextlib.suppress(source.UnreadableError, OSError, ValueError):
            text = source.read_bytes(path, path.as_posix()).decode("utf-8-sig")
            requirements = in_pyproject(text) if path.suffix == ".toml" else in_lines(split_lines(text))
            yield from [each[0] for each in requirements]


def _lines(text: str) -> list[Version]:
    """The release lines that a requirement of torch allows, the oldest first; none for another package."""
    try:
        wanted = Requirement(text)
        if wanted.name.lower() != "torch" or not wanted.specifier:
            return []
        # ``==2.1.0+cu118`` is a build of 2.1.0.
        parts = (f"{s.operator}{s.version.partition('+')[0]}" for s in wanted.specifier)
        public = SpecifierSet(",".join(parts))
    except (InvalidRequirement, InvalidSpecifier, RecursionError):
        return []
    return [line for line in _LINES if any(public.contains(f"{line}.{patch}") for patch in _PATCHES)]


# -- checks YAML files, for devices of programs, packages of conda and GPUs of containers, and Dockerfiles ------

#: A key and its value, in block style or inside of ``{...}``: ``model.device: cuda:0``.
_ENTRY = re.compile(
    r"""(?:^\s*(?:-\s+)*|[{,]\s*)["']?([\w.-]+)["']?\s*:\s+"""
    r"""(?:["']?([\w.:-]+)["']?|(\[[\w"', -]{0,80}\]))\s*(?=$|[,}#])"""
)
_DECIDES = "the program that reads the file decides what its values mean"
#: The line above a text of several lines, which is no setting.
_TEXT = re.compile(r"[:-]\s+[|>][+-]?\d?[+-]?\s*(#.*)?$")
_PACKAGE = re.compile(r"""^\s*-\s+["']?(?:[\w./-]+::)?([\w.-]+)\s*([=<>!~ ][^"'#]*)?["']?\s*(#.*)?$""")
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


_TABLES = msgspec.convert(
    documents.from_toml(documents.read_text(Path(__file__).with_name("configurations.toml"))),
    dict[str, tuple[_Setting, ...]],
)
#: The begin of a text of several lines in a Dockerfile: the word that ends it.
_HEREDOC = re.compile(r"<<-?[\"']?([A-Z_]{1,40})\b")
#: The instruction that a line of a Dockerfile begins.
_INSTRUCTION = re.compile(
    r"\s*(?:ONBUILD\s+)?"
    r"(FROM|RUN|CMD|ARG|ENV|COPY|ADD|LABEL|USER|SHELL|EXPOSE|VOLUME|WORKDIR|ENTRYPOINT|HEALTHCHECK|STOPSIGNAL)\s",
    re.IGNORECASE,
)
#: Accelerators other than MPS: a strategy of several processes is then no finding.
_NOT_MPS = {"cpu", "cuda", "tpu", "hpu"}


def check_configuration(text: str, path: Path) -> Iterator[tuple[ScanRule, Hit]]:
    """Yield the findings in a YAML file or a Dockerfile, each line by itself."""
    lines = text.splitlines()
    if source.is_container(path):
        yield from _check_container(lines)
        return
    if path.stem.lower().startswith(("environment", "conda")):
        yield from ((find_missing_packages, hit) for hit in _check_packages(lines))
    for number, key, value, block in [*_settings(lines)]:
        for each in _TABLES["settings"]:
            is_named = re.fullmatch(each.key, key.rpartition(".")[2])
            if not (is_named and re.fullmatch(each.value, value)) or (each.beside and each.beside.isdisjoint(block)):
                continue
            if each.rule == find_nccl.id and block.get("accelerator") in _NOT_MPS:
                continue
            yield _report(each, number, key, value)


def _report(setting: _Setting, line: int, key: str, value: str) -> tuple[ScanRule, Hit]:
    rule = BY_ID[setting.rule]
    hit = Hit(
        node=ast.Pass(lineno=line, end_lineno=line, col_offset=0),
        message=setting.message.format(key=key, value=value),
        hint=setting.hint,
        severity=setting.severity,
        no_fix=rule.no_fix if rule is GPU_CONTAINERS else _DECIDES,
    )
    return rule, hit


def _check_container(lines: Sequence[str]) -> Iterator[tuple[ScanRule, Hit]]:
    """Yield the findings in a Dockerfile; a line without an instruction of its own belongs to the last instruction."""
    instruction, goes_on, end = "", False, ""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begin = None if goes_on or end else _INSTRUCTION.match(line)
        opened = _HEREDOC.search(line)
        end = opened[1] if opened and not end else end * (line.strip() != end)
        instruction, goes_on = begin[1].upper() if begin else instruction, line.rstrip().endswith("\\")
        for each in _TABLES["container_lines"]:
            if re.fullmatch(each.key, instruction) and (part := re.search(each.value, line)):
                yield _report(each, number, instruction, part[0])


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
        for key, value, several in _ENTRY.findall(line):
            blocks[-1][1][key.rpartition(".")[2]] = value or several
            yield number, key, value or several, blocks[-1][1]


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
            for text, _, severity in in_lines(listed):
                yield from judge(text, number, severity)
            continue
        package = _PACKAGE.match(line)
        if package and (package[1].lower() in _OF_CUDA or "cuda" in (package[2] or "").lower()):
            yield Hit(
                node=ast.Pass(lineno=number, end_lineno=number, col_offset=0),
                message=f"{package[1]} is for CUDA and has no build for macOS: conda cannot create this environment",
                hint="write another environment for a Mac, without the package",
                no_fix="conda has no condition on the system in this file",
            )
