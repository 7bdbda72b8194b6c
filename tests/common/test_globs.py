"""Patterns match as fnmatch and git do, in linear time."""

from __future__ import annotations

import fnmatch
import random
import re
import time

import pytest

from opcheck.common.globs import fits, ignore_expression


def test_a_pattern_matches_what_fnmatch_matches() -> None:
    chance = random.Random(1)  # noqa: S311  (no secret)
    for _ in range(4_000):
        glob = "".join(chance.choice("ab*?[]!^-\\/.") for _ in range(chance.randint(0, 8)))
        name = "".join(chance.choice("ab-]![^\\/.\n") for _ in range(chance.randint(0, 6)))
        assert fits(name, glob) is fnmatch.fnmatchcase(name, glob), (name, glob)


@pytest.mark.parametrize("glob", ["*a" * 300 + "c", "[" * 20_000, "*" * 20_000 + "c", "*?" * 2000, "[!b]*" * 300 + "c"])
def test_no_pattern_takes_long(glob: str) -> None:
    start = time.process_time()
    assert not fits("a" * 1000 + "b", glob)
    assert time.process_time() - start < 5


#: A line, and paths that git 2.39 ignores with it, and that it does not.
LINES = (
    ("a", ("a", "a/", "b/a"), ("ab", "b")),
    ("a/", ("a/", "b/a/"), ("a",)),
    ("/a", ("a",), ("b/a",)),
    ("a/b", ("a/b",), ("c/a/b", "a/c")),
    ("*.py", (".py", "b/a.py"), ("a.pyc",)),
    ("a*b?c", ("abxc", "axbxc"), ("abc", "a/bxc")),
    ("**/a/b", ("a/b", "c/d/a/b"), ("a/c/b",)),
    ("a/**", ("a/b", "a/b/c/"), ("a/",)),
    ("a/**/b", ("a/b", "a/c/d/b"), ("ab", "c/a/b")),
    ("a/*/b", ("a/c/b",), ("a/b", "a/c/d/b")),
    ("**", ("a", "a/b"), ()),
    ("[ab]", ("a", "c/b"), ("c",)),
    ("[!ab]", ("c",), ("a",)),
    ("[^ab]", ("c",), ("b",)),
    ("[a-c]", ("b",), ("d",)),
    ("[]a]", ("]", "a"), ("b",)),
    (r"\#a", ("#a",), ("a",)),
    (r"\!a", ("!a",), ("a",)),
    (r"a\*", ("a*",), ("ab",)),
    ("a  ", ("a",), ("a  ",)),
    (r"a\ ", ("a ",), ("a",)),
    ("a[", (), ("a[", "a")),
)


@pytest.mark.parametrize(("line", "ignored", "kept"), LINES)
def test_a_line_of_gitignore(line: str, ignored: tuple[str, ...], kept: tuple[str, ...]) -> None:
    rule = ignore_expression(line)
    assert rule is not None
    is_ignored, text = rule
    expression = re.compile(rf"(?:{text})\Z", re.DOTALL)
    assert is_ignored
    assert [path for path in ignored if not expression.match(path)] == []
    assert [path for path in kept if expression.match(path)] == []


@pytest.mark.parametrize("line", ["", "# a", "   ", "/", "!", "a\\"])
def test_a_line_without_a_pattern(line: str) -> None:
    assert ignore_expression(line) is None


def test_an_exclamation_mark_includes_again() -> None:
    rule = ignore_expression("!a")
    assert rule is not None
    assert not rule[0]
    assert re.match(rule[1], "a")
