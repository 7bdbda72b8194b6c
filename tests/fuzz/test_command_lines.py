"""Whole command lines: every verb, its flags with values that fit and that do not, in any order."""

from __future__ import annotations

import click
import pytest
from hypothesis import strategies as st

from opcheck.cli import opcheck
from tests.fuzz.documents import NASTY
from tests.fuzz.effort import fuzzed
from tests.fuzz.test_configuration import FILES, Undone, swept
from tests.fuzz.test_reports import WHOLE
from tests.fuzz.trial import Trial

#: Verbs that are left out: they download, write for a minute, or write files that no argument names.
#: The first three write what the line does not name, and a server waits for its client.
LEFT_OUT = {"lists build", "site build", "init", "mcp"}

NUMBERS = ("0", "1", "-1", "2", "1e999", "nan", "inf", "9" * 5000, "0x10", "1_0", "", "٣")
VERSIONS = (
    "2.13",
    "2.4",
    "1.13",
    "1.12",
    "9.9",
    "2",
    "2.13.1",
    "2.13.0+cpu",
    "v2.13",
    "15",
    "14.4",
    "26",
    "newest",
    "all",
    "last 2",
    "last 0",
    "last " + "9" * 5000,
    ">=2.9",
    ">=2.9,<2.9",
    "1." * 2000 + "1",
    "9" * 5000,
    "2.13.0.dev1",
    "",
)
WORDS = (
    *("aten::mm", "torch.fft.rfft", "isin", "F.gelu", "OC102", "complex_mul", "schema", "2.9", "2.13"),
    *("models.py:encoder", "models.py", "torch.nn:Linear", "timm:resnet50", "timm:", "x.pt2", ":"),
    *("transformers:Bert*", "report.json", "train.py", ".", "missing.json", "/dev/null", "-"),
    *("torch=2.9,macos=14", "torch=2.13,macos=15,fallback=1", "torch=", "=,=", "a=1", "x=1x2:float32"),
    *("1x3x4:float32", "float16", "float64", "fallback=3", "bytes=10MB", "bytes=" + "9" * 5000),
    *("sgd:momentum=0.9", "1" + "x1" * 500, "-1x2", "1x2:nothing", "a='[1, 2'", "a=" + "[" * 200),
)
FILES_OUT = ("out.json", "out.txt", "", "-", ".", "missing/out.json", "out.\x1b", "o" * 300)


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every verb that is no group, by its words."""
    results: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            results |= leaves(command, (*path, name))
        elif command is not None:
            results[" ".join((*path, name))] = command
    return results


LEAVES = {name: verb for name, verb in leaves(opcheck).items() if name not in LEFT_OUT}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A verb, some of its flags, and arguments."""
    name = draw(st.sampled_from(sorted(LEAVES)))
    verb = LEAVES[name]
    parts: list[list[str]] = []
    flags = [each for each in verb.params if isinstance(each, click.Option)]
    for flag in draw(st.lists(st.sampled_from(flags), max_size=4)) if flags else ():
        spelled = draw(st.sampled_from([*flag.opts, *flag.secondary_opts]))
        parts.append([spelled] if flag.is_flag else [spelled, draw(_value(flag))])
    count = draw(st.integers(0, 3))
    words = st.one_of(st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from(NASTY))
    parts += [[draw(words)] for _ in range(count)]
    if name in {"doctor", "sweep models"}:
        # Where a sweep keeps its results, and what a machine is, is its own.
        parts = [part for part in parts if part[0] not in {"--folder", "--gather"}]
    # A watch ends by Ctrl-C alone.
    parts = [part for part in parts if part[0] != "--watch"]
    ordered = draw(st.permutations(parts))
    # A system passes no null character to a program.
    return [*name.split(), *(word.replace("\0", "") for part in ordered for word in part)]


def _value(flag: click.Option) -> st.SearchStrategy[str]:
    if flag.name == "output_path":
        return st.sampled_from(FILES_OUT)
    if flag.name in {"folder", "repro", "propose", "save_graph", "emit_metal", "baseline"}:
        return st.sampled_from(("out.json", "", "-"))
    near: tuple[str, ...] = WORDS
    if isinstance(flag.type, click.Choice):
        near = (*map(str, flag.type.choices), "nothing")
    elif flag.type is not click.STRING:
        near = NUMBERS
    elif flag.name in {"torch", "macos", "releases"}:
        near = VERSIONS
    return st.one_of(*([st.sampled_from(near)] * 4), st.sampled_from(NASTY))


def short() -> Undone:
    """Verbs that take seconds whatever they are given, without that: all operators' coverage, and the lint."""
    patch = pytest.MonkeyPatch()
    patch.setattr("opcheck.features.matrix.page.render", lambda *_args, **_options: "")
    patch.setattr("opcheck.data.lint.lint", lambda _directory: 0)
    return Undone(patch)


KEPT = [
    ["scan", "train.py", "--macos", "9" * 5000],
    ["op", "aten::mm", "-o", "o" * 300],
    ["sweep", "models", "9" * 5000],
    ["sweep", "report", "9" * 5000],
    ["lists", "lint", "--directory", "\x1b[2J"],
]


@fuzzed(command_lines(), quick=300, long=20000, kept=KEPT)
def test_a_command_line(trial: Trial, content: list[str]) -> None:
    with swept(), short():
        trial(content, {**FILES, "report.json": WHOLE})
