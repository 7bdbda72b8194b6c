"""The program as a process: what it loads, its pipes, its helps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.cli import invoke
from opcheck.features import features

_REPORT_MODULES = """
import sys
from pathlib import Path
from opcheck.cli import invoke
code = invoke(sys.argv[1:])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""


def modules_after(*args: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _REPORT_MODULES, *args], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("lists",), ("explain", "OC101"), ("audit", "--help")])
def test_torch_is_not_loaded_where_nothing_is_run(args: tuple[str, ...]) -> None:
    assert not {"torch", "networkx", "rich"} & modules_after(*args)


#: All that the help imports of this package, and what an operator lookup imports beside it.  A new name here makes the
#: first command that people try slower for everyone.
HELP_IMPORTS = {"cli": "streams", "common": "errors sanitize tool", "worker": "platform process"}
LOOKUP_IMPORTS = {
    "cli": "config helps options",
    "common": "documents files grouping memo names picking python_source text versions vocabulary yaml_text",
    "data": "composites conditions extensions files history kernel_routes matching messages programs python_calls refused "
    "registrations statement_files statement_model statements strict_yaml tables targets",
    "judge": "judge texts",
    "lookup": "answer matrix notes operator_facts past plain_call query answer_records answer_words",
    "model": "options records",
    "features": "op op.page op.verb",
    "render": "wording document markdown text",
}


def modules(table: dict[str, str]) -> set[str]:
    """The modules of a table, with their rooms."""
    names = {f"opcheck.{room}.{name}" for room, names in table.items() for name in names.split()}
    return {"opcheck", *(f"opcheck.{room}" for room in table), *names}


ALL_FEATURES = {"opcheck.features", *(f"opcheck.features.{verb}" for verb in features())}


@pytest.mark.parametrize(
    ("args", "own", "libraries"),
    [
        (("--help",), modules(HELP_IMPORTS) | ALL_FEATURES, {"click"}),
        (
            ("op", "aten::nonzero", "-o", "-"),
            modules(HELP_IMPORTS) | modules(LOOKUP_IMPORTS),
            {"click", "msgspec", "yaml", "typing_extensions"},
        ),
    ],
    ids=["help", "op"],
)
def test_help_and_lookup_import_what_they_need_alone(args: tuple[str, ...], own: set[str], libraries: set[str]) -> None:
    before = modules_after("--version")
    loaded = modules_after(*args)
    assert {name for name in loaded if name.partition(".")[0] == "opcheck"} <= own
    others = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"opcheck"}
    started = {name.partition(".")[0] for name in before}  # what .pth files of the environment load
    assert others <= libraries | (started - {"numpy", "torch"}) | {"_cython_3_1_4", "cython_runtime"}


@pytest.mark.parametrize("verb", features())
def test_each_verb_says_the_same_in_both_helps(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([verb, "--help"]) == 0
    own = capsys.readouterr().out
    assert invoke(["--help"]) == 0
    assert features()[verb].help in " ".join(own.split())
    assert features()[verb].help in " ".join(capsys.readouterr().out.split())


def test_without_a_verb_the_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


def test_an_unknown_verb_is_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["adit"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("opcheck has no command 'adit'")
    assert lines[1:] == ["  in: opcheck", "  help: did you mean opcheck audit?"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("histroy", "opcheck history?"),
        ("torch.acos", "opcheck op torch.acos?"),
        ("aten::add", "opcheck op aten::add?"),
        ("net.py:Net", "opcheck audit net.py:Net?"),
        ("timm:resnet18", "opcheck audit timm:resnet18?"),
        ("train.py", "opcheck run train.py?"),
        ("OC102", "opcheck explain OC102?"),
        ("frobnicate", "opcheck --help lists the commands"),
    ],
)
def test_a_name_without_its_verb_is_answered_with_the_command(
    name: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([name]) == 2
    assert capsys.readouterr().err.splitlines()[2].endswith(command)


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", "explain", "OC999"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("unknown finding")


def test_a_reader_that_stops_early_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "opcheck", "explain", "OC101"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        result = process.stderr.read()
    assert (process.returncode, result) == (0, b"")


def test_an_error_that_knows_no_place_has_three_lines_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "opcheck.toml").write_text('torch = "newest?"')
    (tmp_path / "ci.log").touch()
    assert invoke(["observe", "ci.log"]) == 2
    assert capsys.readouterr().err.splitlines()[1] == "  in: opcheck observe"


#: The helps of all commands, one after the other.
_HELPS = """
import click
from opcheck.cli import opcheck
def show(command, context):
    print(command.get_help(context))
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        child = command.get_command(context, name)
        show(child, click.Context(child, info_name=name, parent=context))
show(opcheck, click.Context(opcheck, info_name="opcheck"))
"""


def test_python_without_docstrings_has_the_same_helps() -> None:
    plain, without = (
        subprocess.run([sys.executable, *flags, "-c", _HELPS], capture_output=True, text=True, check=True).stdout
        for flags in ((), ("-OO",))
    )
    assert without == plain
    assert "Exit codes: 0 nothing" in without
