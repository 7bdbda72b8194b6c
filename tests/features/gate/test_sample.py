"""The sample project, really audited: twice, changed, interrupted, its output cut off."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opcheck.cli import invoke

SAMPLE = Path(__file__).with_name("sample")


def gate(*args: str, cache: Path) -> int:
    """Exit code of a run in this process, whose report is written to out.json."""
    return invoke(["gate", "-q", "--jobs", "1", "--cache-dir", str(cache), "-o", "out.json", *args])


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project after a first run of one of its models on all six targets."""
    folder = tmp_path_factory.mktemp("gate") / "sample"
    shutil.copytree(SAMPLE, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert gate("encoder", cache=folder.parent / "cache") == 0
    return folder


@pytest.fixture
def project(audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project, as it was after that run again afterwards."""
    shutil.copytree(audited, tmp_path / "before")
    monkeypatch.chdir(audited)
    yield audited
    for path in (tmp_path / "before").iterdir():
        if path.is_file():
            shutil.copy2(path, audited)


def audits(monkeypatch: pytest.MonkeyPatch, project: Path) -> bool:
    """Whether a run would audit the model again."""
    asked: list[object] = []

    def many(*_args: object, **_options: object) -> tuple[object, ...]:
        asked.append(_args)
        raise KeyboardInterrupt

    monkeypatch.setattr("opcheck.orchestrator.audit_targets", many)
    code = gate("encoder", cache=project.parent / "cache")
    assert code == (130 if asked else 0)
    return bool(asked)


def test_the_second_run_is_the_same_bytes_and_audits_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (project / "out.json").read_bytes()
    assert not audits(monkeypatch, project)
    assert (project / "out.json").read_bytes() == before
    assert b'"torch 2.15, macOS 26.0"' in before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("models.py", "torch.relu", "torch.tanh"),
        ("sizes.py", "WIDTH = 4", "WIDTH = 5"),
        ("scale.json", "2", "3"),
        ("pyproject.toml", 'model = "models.py:encoder"', 'model = "models.py:encoder"\ngrad = true'),
    ],
)
def test_a_change_of_what_it_reads_is_audited_anew(
    project: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str
) -> None:
    path = project / file
    path.write_text(path.read_text().replace(old, new, 1))
    assert audits(monkeypatch, project)


def test_a_file_that_it_does_not_read_is_no_change(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "notes.md").write_text("nothing")
    assert not audits(monkeypatch, project)


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """Signals for what is started here, also where a shell has started the tests in the background, deaf."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def started(project: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts ``opcheck gate`` as a user does; everything is kept already."""

    def start(*args: str, **options: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "opcheck", "gate", "encoder"]
        command += ["--cache-dir", str(project.parent / "cache"), *args]
        process: subprocess.Popen[str] = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        return process

    return start


def test_a_reader_that_stops_early_is_no_error(started: Callable[..., subprocess.Popen[str]]) -> None:
    process = started("-q", "-f", "json", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_disk_is_said_in_three_lines(started: Callable[..., subprocess.Popen[str]]) -> None:
    with Path("/dev/full").open("w") as full:
        process = started("-q", stdout=full)
        _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.splitlines()[0] == "cannot write the report: No space left on device"
    assert len(errors.splitlines()) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_shows_what_was_finished(started: Callable[..., subprocess.Popen[str]], project: Path) -> None:
    # The first model is kept; the other two run in processes of their own, which are ended.
    process = started("slow", "slower", "--jobs", "2", "-v", stdout=subprocess.PIPE)
    assert process.stderr is not None
    for line in process.stderr:
        if "importing torch" in line:
            break
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=1200)
    assert process.returncode == 130
    assert "interrupted before slow" in out
    assert "encoder  torch 2.9, macOS 15.0" in out
    assert "Traceback" not in errors


@pytest.mark.slow
def test_the_whole_project_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SAMPLE, tmp_path / "sample")
    monkeypatch.chdir(tmp_path / "sample")
    cache = tmp_path / "cache"
    known = ("--baseline", "known.yaml")
    names = ("encoder", "spectrum", "training")
    assert gate(*names, cache=cache) == 1
    assert gate(*names, *known, "--update-baseline", cache=cache) == 0
    with monkeypatch.context() as patch:
        # What is kept needs no audit.
        patch.delattr("opcheck.orchestrator.audit_targets")
        assert gate(*names, *known, cache=cache) == 0
    assert gate(*names, "broken", *known, cache=cache) == 3
    assert gate("broken", "spectrum", cache=cache) == 1
    newest = ("--torch", "newest", "--fallback", "--fail-on", "unsupported")
    assert gate("spectrum", *newest, cache=cache) == 0
