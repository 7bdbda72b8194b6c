"""``python -m scripts`` runs declared steps in the order of their files, skips what is up to date and resumes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.steps import Runner, Step, StepError, order, read_steps, summary

ROOT = Path(__file__).parents[2]
VALUES = {"release": "9.9.0", "line": "9.9"}


def step(run: str = "nothing", **fields: Any) -> Step:
    return Step(run=run, **fields)


@pytest.fixture
def fake_release(tmp_path: Path) -> dict[str, Step]:
    """Three steps of a release that has one operator: its list, its lint, its page."""
    (tmp_path / "copy.py").write_text(
        "import pathlib, sys\n"
        "source, target, *words = sys.argv[1:]\n"
        "pathlib.Path(target).write_text(pathlib.Path(source).read_text() + ''.join(words))\n"
        "pathlib.Path('log').open('a').write(target + ' ')\n"
    )
    (tmp_path / "lint.py").write_text(
        "import pathlib, sys\n"
        "pathlib.Path('log').open('a').write('lint ')\n"
        "text = pathlib.Path('list').read_text()\n"
        "sys.exit(2 if 'broken' in text else int('lost' in text))\n"
    )
    (tmp_path / "wheel").write_text("aten::add ")
    return {
        "page": step("copy list page", check="same", reads=("list",), writes=("page",)),
        "lint": step("lint", reads=("list",), findings=True, review="Explain the lost kernel."),
        "list": step("copy wheel list {release}", reads=("wheel",), writes=("list",)),
    }


def run(steps: dict[str, Step], root: Path) -> tuple[list[tuple[str, str]], str]:
    """Return how the steps ended, and what the commands wrote to their log."""
    log = root / "log"
    log.write_text("")
    outcomes = Runner(steps, VALUES, root, note=lambda _: None).run(order(steps))
    return [(each.name, each.state) for each in outcomes], log.read_text()


def test_a_fake_release_runs_in_the_order_of_its_files_and_then_not_again(
    tmp_path: Path, fake_release: dict[str, Step]
) -> None:
    done, log = run(fake_release, tmp_path)
    assert done == [("list", "done"), ("page", "done"), ("lint", "done")]
    assert log == "list page lint "
    assert (tmp_path / "page").read_text() == "aten::add 9.9.0"
    again, log = run(fake_release, tmp_path)
    assert {state for _, state in again} == {"up to date"}
    assert log == ""


def test_a_changed_input_runs_what_depends_on_it_alone(tmp_path: Path, fake_release: dict[str, Step]) -> None:
    run(fake_release, tmp_path)
    (tmp_path / "page").write_text("edited by hand")
    done, log = run(fake_release, tmp_path)
    assert done == [("list", "up to date"), ("page", "done"), ("lint", "up to date")]
    assert log == "page "


def test_a_failed_step_ends_the_run_which_goes_on_from_there(tmp_path: Path, fake_release: dict[str, Step]) -> None:
    (tmp_path / "wheel").write_text("broken ")
    done, _ = run(fake_release, tmp_path)
    assert done == [("list", "done"), ("page", "done"), ("lint", "failed")]
    (tmp_path / "lint.py").write_text("")
    done, log = run(fake_release, tmp_path)
    assert done == [("list", "up to date"), ("page", "up to date"), ("lint", "done")]
    assert log == ""


def test_a_finding_is_to_be_reviewed_and_stops_nothing(tmp_path: Path, fake_release: dict[str, Step]) -> None:
    (tmp_path / "wheel").write_text("lost ")
    runner = Runner(fake_release, VALUES, tmp_path, note=lambda _: None)
    outcomes = runner.run(order(fake_release))
    assert [each.state for each in outcomes] == ["done", "done", "to review"]
    assert "lint: Explain the lost kernel." in summary(outcomes, 3)
    # A run that goes on later still ends with the whole list.
    later = Runner(fake_release, VALUES, tmp_path, note=lambda _: None).run(order(fake_release))
    assert "lint: Explain the lost kernel." in summary(later, 3)


def test_a_check_writes_nothing_and_names_what_is_stale(tmp_path: Path, fake_release: dict[str, Step]) -> None:
    (tmp_path / "same.py").write_text(
        "import pathlib, sys\nsys.exit(pathlib.Path('page').read_text() != pathlib.Path('list').read_text())"
    )
    run(fake_release, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    runner = Runner(fake_release, VALUES, tmp_path, note=lambda _: None)
    assert {each.state for each in runner.check(list(fake_release))} == {"up to date"}
    (tmp_path / "list").write_text("newer")
    states = {each.name: each.state for each in runner.check(list(fake_release))}
    assert states == {"page": "stale", "lint": "not checked", "list": "not checked"}
    assert {path for path in before if path.read_bytes() != before[path]} == {tmp_path / "list"}


def test_a_step_that_is_its_own_check_leaves_its_files_as_they_were(
    tmp_path: Path, fake_release: dict[str, Step]
) -> None:
    fake_release["page"] = step("copy list page", check="run", reads=("list",), writes=("page",))
    runner = Runner(fake_release, VALUES, tmp_path, note=lambda _: None)
    (tmp_path / "list").write_text("new")
    assert [each.state for each in runner.check(["page"])] == ["stale"]
    assert not (tmp_path / "page").exists()
    (tmp_path / "page").write_text("old")
    assert [each.state for each in runner.check(["page"])] == ["stale"]
    assert (tmp_path / "page").read_text() == "old"
    (tmp_path / "page").write_text("new")
    assert [each.state for each in runner.check(["page"])] == ["up to date"]
    (tmp_path / "list").unlink()
    assert [each.state for each in runner.check(["page"])] == ["stale"]


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"a": step(after=("b",)), "b": step(after=("a",))}, "steps form a cycle: a -> b -> a"),
        ({"a": step(writes=("x",)), "b": step(writes=("x/y",))}, "a and b write the same file"),
        ({"a": step(writes=("x/*.json",)), "b": step(writes=("x/y.json",))}, "a and b write the same file"),
        ({"a": step(after=("c",))}, "a follows an unknown step: c"),
    ],
)
def test_a_graph_that_cannot_run_is_refused(steps: dict[str, Step], message: str) -> None:
    with pytest.raises(StepError, match=re.escape(message)):
        order(steps)


def test_the_declared_graphs_can_run_and_their_files_exist() -> None:
    entries = read_steps()
    assert list(entries) == ["release", "refresh", "bench", "trial"]
    for steps in (entries["release"] | entries["refresh"], entries["bench"], entries["trial"]):
        order(steps)
    for name, each in [(name, each) for steps in entries.values() for name, each in steps.items()]:
        for text in {each.run, each.check or each.run} - {"run"}:
            module = text.split()[0]
            assert module == "opcheck" or (ROOT / f"{module.replace('.', '/')}.py").is_file(), name
        for path in (*each.reads, *each.writes):
            assert path.startswith("build/") or list(ROOT.glob(path)), f"{name}: {path}"


def test_each_script_is_a_step_or_serves_one() -> None:
    """A script that no step runs would be found by nobody."""
    steps = [each for entry in read_steps().values() for each in entry.values()]
    run_by_steps = {word.removeprefix("scripts.") for each in steps for word in each.run.split()[:1]}
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "scripts").glob("*.py")}
    others = {name for name, text in sources.items() if "\ndef main(" in text} - run_by_steps
    # The recording runs in the environment of its release; the last two serve a reader.
    assert others == {"opinfo_lists", "propose_limitations", "house"}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["release", "2.13"], 2, "'2.13' is no release"),
        (["bench", "nothing"], 2, "no such step: nothing; bench has capture"),
        (["release", "2.15.0", "--list"], 0, "opcheck lists build {release}"),
    ],
)
def test_the_command_says_what_it_takes(words: list[str], code: int, text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert text in done.stdout + done.stderr
