"""An option is declared once: as a field of a record it is a flag, a key, a key of the gate's tables and a keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import click
import msgspec
import pytest

from opcheck.api import with_keywords
from opcheck.capture.request import CaptureOption, CaptureOptions
from opcheck.cli import config
from opcheck.cli.complete import attach
from opcheck.cli.config import of_kind
from opcheck.cli.options import verb
from opcheck.common.errors import UsageError
from opcheck.features.gate.gate_records import GateModel, table
from opcheck.model.records import Report


def _even(depth: int) -> int:
    if depth % 2:
        raise UsageError(f"not an even depth: {depth}", hint="add one")
    return depth // 2


class Wider(CaptureOptions, frozen=True, kw_only=True):
    """The options of a capture, and one that is new."""

    view_depth: Annotated[int, CaptureOption("How deep.", metavar="N", check=_even, values=("2", "4"))] = 0


def command_of(taken: list[Wider]) -> click.Command:
    @verb("new", table="", help="A verb that takes the new record.")
    def command(*, capture: Wider) -> int:
        taken.append(capture)
        return 0

    return command


def run(*args: str) -> Wider:
    taken: list[Wider] = []
    command_of(taken).main(list(args), standalone_mode=False)
    return taken[0]


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_field_is_a_flag_with_a_help_a_check_and_a_default() -> None:
    command = command_of([])
    assert "--view-depth N" in command.get_help(click.Context(command))
    assert run("--view-depth", "4") == Wider(view_depth=2)
    assert run() == Wider()
    with pytest.raises(UsageError, match="not an even depth: 3") as caught:
        run("--view-depth", "3")
    assert caught.value.context == "--view-depth"


def test_it_is_a_variable_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("opcheck.toml").write_text("view-depth = 4\n")
    assert config.defaults("", command_of([]).params, Path.cwd()) == {"view_depth": 4}
    assert run().view_depth == 2
    monkeypatch.setenv("OPCHECK_VIEW_DEPTH", "8")
    assert run().view_depth == 4


def test_a_shell_completes_its_values() -> None:
    command = command_of([])
    attach(command)
    (flag,) = (param for param in command.params if param.name == "view_depth")
    items = flag.shell_complete(click.Context(command), "")
    assert [item.value for item in items] == ["2", "4"]


def test_it_is_a_key_of_the_gates_tables() -> None:
    kind = table(GateModel, Wider)
    (given, silent) = of_kind(kind, [{"model": "a", "view-depth": 4}, {"model": "b"}], "models", "opcheck.toml")
    assert given.pick_options(Wider) == {"view_depth": 2}
    assert silent.pick_options(Wider) == {}
    with pytest.raises(UsageError, match="unknown key: 'view_depth'"):
        of_kind(kind, [{"model": "a", "view_depth": 4}], "models", "opcheck.toml")


def test_it_is_a_keyword_of_the_api_with_its_help() -> None:
    def audit(model: str, inputs: Any = None, **options: Any) -> Report:
        """Audit with AuditOptions:"""
        raise NotImplementedError

    made = cast("Callable[..., Report]", with_keywords(Wider)(audit))
    parameter = inspect.signature(made).parameters["view_depth"]
    assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, 0)
    assert "view_depth: How deep." in (made.__doc__ or "")


def test_it_is_a_flag_of_a_report() -> None:
    assert Wider(view_depth=2).flags() == ["--view-depth=2"]
    assert Wider().flags() == []


def test_a_report_names_the_flags_that_ask_for_its_capture_again() -> None:
    options = CaptureOptions(
        inputs=("1x3", "x=2:int64"),
        config={"layers": 2, "name": "a b"},
        precision=("float32", "float16"),
        grad=True,
        mode="train",
        save_graph="graph.py",
        time_limit=1.0,
    )
    assert options.flags() == [
        *("--input=1x3", "--input=x=2:int64", "--config=layers=2", '--config=name="a b"'),
        *("--precision=float32,float16", "--grad", "--mode=train", "--optimizer=adamw"),
    ]
    assert CaptureOptions(optimizer="sgd").flags() == []
    assert msgspec.json.decode(msgspec.json.encode(options), type=CaptureOptions) == options
