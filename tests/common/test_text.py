from __future__ import annotations

import pytest

from opcheck.common.text import error_text, filesize, plural


@pytest.mark.parametrize(
    ("number", "noun", "words"), [(0, "call", "0 calls"), (1, "copy", "1 copy"), (1234, "copy", "1,234 copies")]
)
def test_plural(number: int, noun: str, words: str) -> None:
    assert plural(number, noun) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5 * 1024**4, "5.0 TiB"),
    ],
)
def test_filesize(number: int, words: str) -> None:
    assert filesize(number) == words


class _SilentError(Exception):
    def __str__(self) -> str:
        raise KeyError(1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\nlines"), "two\nlines"),
        (ValueError("no character: \ud800"), "no character: \\ud800"),
        (_SilentError(), "(its message cannot be read)"),
    ],
)
def test_the_text_of_any_exception_can_be_written(error: Exception, text: str) -> None:
    assert error_text(error) == text
    error_text(error).encode()
