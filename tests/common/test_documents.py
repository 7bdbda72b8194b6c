"""What others write is read with limits: each of these texts once took all memory, all time, or the process."""

from __future__ import annotations

import math
import os
import struct
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from opcheck.common import documents
from opcheck.common.documents import DocumentError, from_json, from_python_json, from_toml, from_yaml, read
from opcheck.model.records import Record

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))


class Pair(Record, frozen=True, kw_only=True):
    left: int
    right: str


@pytest.mark.parametrize(
    ("reader", "text", "reason"),
    [
        (from_yaml, "[" * 50_000, "levels deep"),
        (from_yaml, "- " * 50_000 + "a", "levels deep"),
        (from_yaml, "? " * 50_000 + "a", "levels deep"),
        (from_yaml, "{a: " * 50_000, "levels deep"),
        (from_yaml, "\n".join(" " * n + "a:" for n in range(500)), "levels deep"),
        (from_yaml, BOMB, "values"),
        (from_yaml, MERGES, "values"),
        (from_yaml, "&a [b, [c, *a]]", "contains it"),
        (from_yaml, "a: " + "9" * 5000, "a number of more than"),
        (from_yaml, "a: 0x" + "f" * 5000, "a number of more than"),
        (from_yaml, "a: 1" + ":59" * 50_000, "a number of more than"),
        (from_yaml, "a: 1" + ":59" * 50_000 + ".5", "a number of more than"),
        (from_yaml, "2001-99-99", "month"),
        (from_yaml, '!!int ""', "index"),
        (from_yaml, "!!bool x", "x"),
        (from_yaml, "!!timestamp x", "groupdict"),
        (from_yaml, "!!python/object:os.system {}", "tag"),
        (from_yaml, "a: b: c", "mapping values"),
        (from_yaml, b"\xff", "not UTF-8"),
        (from_yaml, "\0", "unacceptable character"),
        (from_yaml, " " * (documents.MOST_YAML + 1), "too long"),
        (from_json, "[" * 100_000, "levels deep"),
        (from_json, "[" * 200 + "]" * 200, "levels deep"),
        (from_json, '{"a":' * 200 + "1" + "}" * 200, "levels deep"),
        (from_json, "9" * 5000, "out of range"),
        (from_json, "1e400", "out of range"),
        (from_json, b'"\xff"', "utf-8"),
        (from_json, '"\ud800"', "surrogates"),
        (from_json, "{", "truncated"),
        (from_json, "[Infinity]", "malformed"),
        (from_python_json, "[NaN", "malformed"),
        (from_python_json, "[NaN, " + "[" * 200 + "]" * 201, "levels deep"),
        (from_python_json, "[NaN, " + "[" * 100_000, "levels deep"),
        (from_python_json, "[NaN, " + "9" * 5000 + "]", "digits"),
        (from_python_json, r'[NaN, "\ud800"]', "surrogates"),
        (from_python_json, "[NaN, Null]", "malformed"),
        (from_toml, "a = " + "[" * 100_000, "levels deep"),
        (from_toml, ".".join(["a"] * 2000) + " = 1", "levels deep"),
        (from_toml, "a = " + "9" * 5000, "digits"),
        (from_toml, "a = 0x" + "f" * 5000, "a number of more than"),
        (from_toml, b"\xff", "not UTF-8"),
    ],
    ids=lambda value: None if callable(value) else value[:12].decode("latin-1") if isinstance(value, bytes) else value[:12],
)  # fmt: skip
def test_what_exceeds_a_limit_is_refused_on_one_line(
    reader: Callable[[str | bytes], object], text: str | bytes, reason: str
) -> None:
    with pytest.raises(DocumentError, match=reason) as caught:
        reader(text)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_within_the_limits_is_read() -> None:
    assert from_yaml("a: &x [1, 2.5, 2026-11-22]\nb: *x")["b"][:2] == [1, 2.5]
    assert from_yaml("") is None
    assert documents.convert(from_yaml("{left: 1, right: a}"), Pair) == Pair(left=1, right="a")
    assert from_json(b'{"left": 1, "right": "a"}', Pair) == Pair(left=1, right="a")
    assert from_toml("[a]\nb = [1]") == {"a": {"b": [1]}}
    with pytest.raises(DocumentError, match="Expected `int`"):
        from_json('{"left": "a", "right": "a"}', Pair)


def test_an_error_knows_its_line() -> None:
    with pytest.raises(DocumentError) as caught:
        from_yaml("a: 1\nb: c: d\n")
    assert caught.value.line == 2


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in ("/dev/zero", tmp_path, tmp_path / ("a" * 5000), tmp_path / "a\0b"):
        with pytest.raises(DocumentError):
            read(path)
    with pytest.raises(DocumentError) as caught:
        read(tmp_path / "none.json")
    assert caught.value.missing


def test_a_file_may_not_be_longer_than_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    with file.open("wb") as writer:
        writer.truncate(8 << 20)
    with pytest.raises(DocumentError, match="longer than 1 MiB"):
        read(file, 1 << 20)
    assert len(read(file)) == 8 << 20


def test_a_named_pipe_is_refused_and_one_of_the_shell_is_read(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no named pipes in folders")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(DocumentError, match="not a regular file"):
        read(pipe)
    reading, writing = os.pipe()

    def write() -> None:
        os.write(writing, b"[1]")
        os.close(writing)

    writer = threading.Timer(0.2, write)
    writer.start()
    try:
        assert from_json(read(f"/dev/fd/{reading}")) == [1]
    finally:
        writer.join()
        os.close(reading)


def test_what_is_shown_of_a_document_is_short() -> None:
    assert len(documents.brief(from_yaml("a: [b, [c]]\n" + "d: " + "e" * 9000))) < 300
    assert documents.brief("opcheck-report/1") == "'opcheck-report/1'"


def test_numbers_that_python_writes_and_json_has_not() -> None:
    assert from_python_json('{"a": -Infinity, "b": Infinity, "c": 1}') == {"a": -math.inf, "b": math.inf, "c": 1}


def test_an_archive_whose_directory_fills_the_memory_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with path.open("wb") as file:
        file.truncate(4 << 30)
        file.seek(0, 2)
        # The directory is said to be all that comes before its end.
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, (4 << 30) - 100, 50, 0))
    with documents.open_file(path) as file, pytest.raises(zipfile.BadZipFile, match="longer than"):
        documents.open_zip(file)
