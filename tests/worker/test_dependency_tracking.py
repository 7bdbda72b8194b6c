"""A process whose reads are noted: what it opens is told, what it makes is not, what nobody can know is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opcheck.worker.dependency_tracking import collect

START = (
    "from opcheck.worker import dependency_tracking\n"
    "from opcheck.worker.protocol import Notes\n"
    "dependency_tracking.note_down(Notes(path='notes.jsonl'))\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    return tmp_path


def note(program: str, **environment: str) -> None:
    subprocess.run(
        [sys.executable, "-c", START + program],
        check=True,
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
    )


def notes(program: str, **environment: str) -> list[list[Any]]:
    """What a program is noted to read, with what it asks of the environment at the end."""
    note(program, **environment)
    return [json.loads(line) for line in Path("notes.jsonl").read_text().splitlines()]


def files(result: list[list[Any]]) -> set[str]:
    return {Path(line[1]).name for line in result if line[0] == "file"}


def test_files_that_are_read_and_modules_that_are_imported_are_noted(folder: Path) -> None:
    result = notes("import helper, wave\nopen('data/a.txt').close()")
    assert result[0] == ["start"]
    assert files(result) == {"helper.py", "a.txt"}
    stat = (folder / "data" / "a.txt").stat()
    assert ["file", str(folder / "data/a.txt"), stat.st_mtime_ns, stat.st_size] in result


def test_a_compiled_module_is_its_source(folder: Path) -> None:
    for _ in range(2):
        Path("notes.jsonl").unlink(missing_ok=True)
        assert files(notes("import helper")) == {"helper.py"}


def test_a_fork_of_it_is_noted_as_well(folder: Path) -> None:
    result = notes("import os\nif not os.fork():\n    open('data/a.txt').close()\n    os._exit(0)\nos.wait()")
    assert files(result) == {"a.txt"}


def test_what_it_writes_itself_is_not(folder: Path) -> None:
    result = notes("open('new.txt', 'w').close()\nopen('new.txt').close()")
    assert files(result) == set()
    assert not [line for line in result if line[0] == "unknowable"]


def test_a_file_that_is_not_there_is_noted_too(folder: Path) -> None:
    result = notes("try:\n    open('gone.txt')\nexcept OSError:\n    pass")
    assert ["file", str(folder / "gone.txt"), None] in result


def test_a_folder_is_noted_by_its_names_and_the_path_by_what_can_be_imported(folder: Path) -> None:
    first = notes("import os, helper\nos.listdir('data')")
    kinds = {line[0]: line[1:] for line in first if line[0] in {"folder", "modules"}}
    assert kinds["folder"][0] == str(folder / "data")
    Path("notes.jsonl").unlink()
    (folder / "report.txt").write_text("no module")
    (folder / "data" / "b.txt").write_text("b")
    second = notes("import os, helper\nos.listdir('data')")
    changed = {line[1] for line in second if line not in first and line[0] in kinds}
    assert changed == {str(folder / "data")}


def test_variables_are_noted_by_what_they_were_before(folder: Path) -> None:
    result = notes(
        "import os\nos.environ['SET'] = '1'\nos.environ['SET'], os.environ.get('B'), 'A' in os.environ", A="1"
    )
    asked = {line[1]: line[2] for line in result if line[0] == "environment"}
    assert set(asked) >= {"SET", "A", "B"}
    assert asked["SET"] is asked["B"] is None
    assert len(asked["A"]) == 32


def test_the_mark_of_a_run_is_no_variable_of_the_program(folder: Path) -> None:
    result = notes("import os\nfor name in ('A', 'OPCHECK_PROCESS'): os.environ[name]", A="1", OPCHECK_PROCESS="7")  # fmt: skip
    asked = {line[1] for line in result if line[0] == "environment"}
    assert "A" in asked
    assert "OPCHECK_PROCESS" not in asked


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])", "starts a program"),
        ("import os\nos.system('true')", "starts a program"),
        ("import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept OSError:\n    pass", "network"),
        ("import sqlite3\nsqlite3.connect(':memory:')", "database"),
        ("open('helper.py', 'r+').close()", "changes a file"),
    ],
)  # fmt: skip
def test_what_nobody_can_know_is_said(folder: Path, program: str, why: str) -> None:
    assert any(line[0] == "unknowable" and why in line[1] for line in notes(program))


@pytest.mark.parametrize(
    "program",
    [
        "import ctypes.util\nctypes.util.find_library('c')",
        "import platform\nplatform.processor()",
        "open('/dev/null', 'r+').close()",
    ],
)
@pytest.mark.skipif(not Path("/dev/null").exists(), reason="this system has no null device")
def test_what_tells_of_the_machine_alone_is_known(folder: Path, program: str) -> None:
    assert not [line for line in notes(program) if line[0] == "unknowable"]


def test_safetensors_opens_files_without_python_and_is_noted(folder: Path) -> None:
    pytest.importorskip("safetensors")
    result = notes(
        "import safetensors.numpy, numpy\n"
        "safetensors.numpy.save_file({'a': numpy.ones(1)}, 'w.safetensors')\n"
        "from safetensors import safe_open\n"
        "with safe_open('w.safetensors', 'np') as opened:\n    opened.keys()\n"
    )
    assert "w.safetensors" in files(result)


@pytest.mark.parametrize(
    "line",
    [
        *("5", "[]", "{}", "[[]]", '["unknowable"]', '["file"]', '["file", 5, 1, 2]', "x"),
        *('["file", "a\\u0000b", 1, 2]', '["folder", "a"]', '["folder", "a", "b", "c"]', "null"),
        *('["environment", null, null]', '["file", "a", 1, 2, 3]', "[" * 50_000),
    ],
)
def test_notes_that_a_program_wrote_to_make_a_result_that_is_not_kept(tmp_path: Path, line: str) -> None:
    notes = tmp_path / "notes"
    notes.write_text(f'["start"]\n{line}\n')
    assert collect(notes, ()).unknowable


#: What keeps a line out of the notes.
_LOSES = {
    "closed": "os.closerange(3, 60)",
    "another file's number": "os.closerange(3, 60)\nkept = [open(f'mine{i}', 'w') for i in range(9)]",
    "a full disk": "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize('notes.jsonl'), -1))",
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file's size")
@pytest.mark.parametrize("loses", _LOSES.values(), ids=_LOSES)
def test_notes_that_lack_a_line_are_none(folder: Path, loses: str) -> None:
    note(f"import os\n{loses}\nopen('data/a.txt').close()\nopen('helper.py').close()")
    assert collect(Path("notes.jsonl"), ()).unknowable
    assert all(not path.stat().st_size for path in folder.glob("mine*"))
