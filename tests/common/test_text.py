from __future__ import annotations

import pytest

from opcheck.common.text import error_chain, error_text, error_type, filesize, plural


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


def test_a_long_message_and_a_long_name_of_a_class_are_cut() -> None:
    error = type("E" * 1_000_000, (Exception,), {})("x" * 1_000_000)
    assert len(error_text(error)) < 100_000
    assert len(error_type(error)) <= 200


def test_a_metaclass_that_raises_does_not_hide_the_name_of_a_class() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> object:
            raise RuntimeError(name)

    class HostileError(Exception, metaclass=Meta):
        pass

    assert error_type(HostileError()) == "HostileError"


def test_a_chain_of_exceptions_has_an_end() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__context__ = second, first
    assert list(error_chain(first)) == [first, second]
    long = ValueError()
    for _ in range(5000):
        later = ValueError()
        later.__context__ = long
        long = later
    assert len(list(error_chain(long))) == 1000
    first.__suppress_context__ = True
    first.__cause__ = None
    assert list(error_chain(first)) == [first]
