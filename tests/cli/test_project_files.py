"""The configuration of a stranger's checkout chooses what is judged and shown; it writes, runs and installs nothing."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from opcheck.capture.request import CaptureOptions
from opcheck.cli.options import Flag
from opcheck.model.options import PATHS, READER, RUNNER, Action, options_of
from tests.command_line import CommandLine

VERBS = {"scan": READER, "observe": READER, **dict.fromkeys(("audit", "gate", "run", "upgrade", "verify"), RUNNER)}
PAGE = Path(__file__).parents[2] / "docs/reference/configuration.md"


def flags(verb: str) -> list[Flag]:
    command = import_module(f"opcheck.features.{verb}.verb").command
    return [param for param in command.params if isinstance(param, Flag) and param.envvar]


def actions() -> dict[str, Action]:
    """The action of each key that is more than a choice."""
    sources = [flag.source for verb in VERBS for flag in flags(verb)] + [*options_of(CaptureOptions)]
    return {s.name: s.option.action for s in sources if s.option.action != "chooses"}


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_that_names_a_file_says_whether_it_is_read_or_written(verb: str) -> None:
    for flag in flags(verb):
        if re.search("FILE|FOLDER|DIR", flag.metavar or ""):
            assert flag.source.option.action in PATHS, flag.name


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_what_its_kind_takes(verb: str) -> None:
    assert import_module(f"opcheck.features.{verb}.verb").command._takes == VERBS[verb]


def test_the_page_lists_each_key_by_what_it_does() -> None:
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told: dict[str, tuple[str, str]] = {}
    for keys, reader, runner in rows:
        told |= dict.fromkeys(re.findall(r"`([\w-]+)`", keys), (reader, runner[:7]))
    below = "a path below the project"
    expected = {
        "reads": (below, below[:7]),
        "writes": ("ignored", below[:7]),
        "runs": ("ignored", "taken"),
        "trusts": ("ignored", "ignored"),
    }
    keys = {**actions(), "paths": "reads"}
    assert {key: told.get(key) for key in keys} == {key: expected[keys[key]] for key in keys}


# Hostile files: what each makes of a command that the user types without a thought.


class Case(NamedTuple):
    name: str
    #: the configuration, with OUT for the folder above the project
    text: str
    args: tuple[str, ...]
    code: int
    #: what stderr says
    says: str = ""
    file: str = "opcheck.toml"


SCAN, FIX = ("scan", "."), ("scan", ".", "--fix")
IGNORED, LEAVES = "is ignored: the file of a project cannot set", "leads out of its folder"
NET = "[[models]]\nname = 'n'\nmodel = 'net.py:Net'\n"
CASES = (
    Case("parent", '[scan]\noutput = "../mine"', SCAN, 1, IGNORED),
    Case("format", '[scan]\noutput = "../mine"\nformat = "jsonl"', SCAN, 1, IGNORED),
    Case("absolute", '[scan]\noutput = "OUT/mine"', SCAN, 1, IGNORED),
    Case("home", '[scan]\noutput = "~/mine"', SCAN, 1, IGNORED),
    Case("link", '[scan]\noutput = "link"', SCAN, 1, IGNORED),
    Case("linked folder", '[scan]\noutput = "up/mine"', SCAN, 1, IGNORED),
    Case("own file", '[scan]\noutput = "net.py"', SCAN, 1, IGNORED),
    Case("git hook", '[scan]\noutput = ".git/hooks/post-merge"', SCAN, 1, IGNORED),
    Case("stdout", '[scan]\noutput = "-"', SCAN, 1, IGNORED),
    Case("shared", '[tool.opcheck.scan]\noutput = "../mine"', SCAN, 1, IGNORED, "pyproject.toml"),
    Case("fix", '[scan]\noutput = "../mine"', FIX, 1, IGNORED),
    Case("diff", '[scan]\noutput = "../mine"', ("scan", ".", "--diff"), 0, IGNORED),
    Case("baseline", '[scan]\nbaseline = "../mine"', SCAN, 2, LEAVES),
    Case("update", '[scan]\nbaseline = "../mine"', (*SCAN, "--update-baseline"), 2, LEAVES),
    Case("linked baseline", '[scan]\nbaseline = "link"', (*SCAN, "--update-baseline"), 2, LEAVES),
    Case("baseline below a link", '[scan]\nbaseline = "up/mine"', SCAN, 2, LEAVES),
    Case("paths", '[scan]\npaths = [".."]', ("scan", "--fix"), 2, LEAVES),
    Case("absolute paths", '[scan]\npaths = ["OUT/other.py"]', ("scan", "--fix"), 2, LEAVES),
    Case("linked paths", '[scan]\npaths = ["up"]', ("scan", "--fix"), 2, LEAVES),
    Case("path of two", '[scan]\npaths = [".", "sub/../../other.py"]', ("scan", "--fix"), 2, LEAVES),
    Case("null", '[scan]\npaths = ["a\\u0000b"]', ("scan",), 2, LEAVES),
    Case("long", f'[scan]\npaths = ["{"a/" * 5000}"]', ("scan",), 2, "File name too long"),
    Case("not a flag", "[scan]\nfix = true", SCAN, 2, "unknown key: 'fix'"),
    Case("no update", "[scan]\nupdate-baseline = true", SCAN, 2, "unknown key"),
    Case("unsafe", "[scan]\nunsafe-fixes = true", SCAN, 2, "unknown key"),
    Case("plugins", '[scan]\nplugins = ["net.py"]', SCAN, 2, "unknown key"),
    Case("hub", '[scan]\nhub = "http://localhost:9"', SCAN, 2, "unknown key"),
    Case("exact", "[scan]\nexact = true", SCAN, 2, "unknown key"),
    Case("log", 'output = "../mine"', ("observe", "log.txt"), 3, IGNORED),
    Case("log here", 'output = "mine"', ("observe", "log.txt"), 3, IGNORED),
    Case("audit", 'output = "../mine"', ("audit", "net.py:Net"), 2, LEAVES),
    Case("audit, link", 'output = "link"', ("audit", "net.py:Net"), 2, LEAVES),
    Case("graph", 'save-graph = "OUT/mine"', ("audit", "net.py:Net"), 2, LEAVES),
    Case("input", 'input-file = ["x=../mine"]', ("audit", "net.py:Net"), 2, LEAVES),
    Case("checkpoint", 'checkpoint = ["up/mine"]', ("audit", "net.py:Net"), 2, LEAVES),
    Case("trust", "trust-remote-code = true", ("audit", "net.py:Net"), 0, IGNORED),
    Case("gate", f'output = "../mine"\n{NET}', ("gate",), 2, LEAVES),
    Case("cache", f'cache-dir = "../cache"\n{NET}', ("gate",), 2, LEAVES),
    Case("gate's baseline", f'baseline = "link"\n{NET}', ("gate", "--update-baseline"), 2, LEAVES),
    Case("model", '[[models]]\nmodel = "../other.py:Net"', ("gate",), 2, LEAVES),
    Case("linked model", '[[models]]\nmodel = "up/other.py:Net"', ("gate",), 2, LEAVES),
    Case("model at home", '[[models]]\nmodel = "~/other.py:Net"', ("gate",), 2, LEAVES),
    Case("model's input", f'{NET}input-file = ["../mine"]', ("gate",), 2, LEAVES),
    Case("model's weights", f'{NET}checkpoint = ["OUT/mine"]', ("gate",), 2, LEAVES),
)


def tree(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def checkout(tmp_path: Path, opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A stranger's checkout below a folder with files of the user."""
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (tmp_path / "mine").write_text("mine\n")
    (tmp_path / "other.py").write_text("import torch\ntorch.cuda.synchronize()\nx = torch.ones(2).cuda()\n")
    (project / "net.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    (project / "log.txt").write_text("torch 2.13\n")
    (project / "link").symlink_to(tmp_path / "mine")
    (project / "up").symlink_to(tmp_path)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path))
    return opcheck


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_hostile_configuration_writes_nothing(checkout: CommandLine, tmp_path: Path, case: Case) -> None:
    Path(case.file).write_text(case.text.replace("OUT", str(tmp_path)))
    before = tree(tmp_path)
    result = checkout(*case.args)
    assert case.says in result.err
    assert result.code == case.code, result.err
    assert "Traceback" not in result.err
    if case.code == 2:
        assert len(result.err.splitlines()) == 3
    assert tree(tmp_path) == before


def test_a_flag_and_a_variable_of_the_user_name_any_file(
    checkout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("opcheck.toml").write_text('[scan]\noutput = "../mine"')
    checkout("scan", ".", "-o", "../first.json")
    monkeypatch.setenv("OPCHECK_OUTPUT", "../second.json")
    checkout("scan", ".")
    assert {path.name for path in tmp_path.glob("*.json")} == {"first.json", "second.json"}


def test_a_project_of_the_user_writes_below_itself(checkout: CommandLine) -> None:
    Path("opcheck.toml").write_text('output = "sub/report.json"')
    result = checkout("audit", "net.py:Net")
    assert result.code == 0
    assert Path("sub/report.json").is_file()
    assert "ignored" not in result.err


def test_a_configuration_above_the_folder_is_not_read(checkout: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "opcheck.toml").write_text('[scan]\nexclude = ["*"]')
    assert checkout("scan", ".").code == 1
