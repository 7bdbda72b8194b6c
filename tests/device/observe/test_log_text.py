"""What terminals and CI services put around a line is taken off, and nothing else."""

from __future__ import annotations

import pytest

from opcheck.device.observe.log_parsing import LONGEST, clean_lines

TEXT = "RuntimeError: MPS: Unsupported Border padding mode"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "2026-09-01T10:00:02.1234567Z ",
        "\ufeff2026-09-01T10:00:02.1234567Z ",
        "build\tRun tests\t2026-09-01T10:00:02.1234567Z ",
        "2024-11-23T17:48:57.189452 - ",
        "[2025-03-19 10:51:46,270] ",
        "2026-09-01T10:00:02.123456Z 01E ",
        "[rank0]: ",
        "\x1b[31m",
        "\x1b]0;title\x07",
        "ERROR:root:",
        "> ",
        "E   ",
        " 10%|#         | 1/10\r",
    ],
)
def test_a_prefix_is_taken_off(before: str) -> None:
    assert clean_lines(before + TEXT)[0].strip() == TEXT


def test_a_colour_inside_of_a_line_is_taken_out() -> None:
    assert clean_lines(f"\x1b[1m{TEXT[:12]}\x1b[0m{TEXT[12:]}") == [TEXT]


def test_the_marks_of_a_traceback_stay() -> None:
    assert clean_lines('  File "a.py", line 3, in f') == ['  File "a.py", line 3, in f']


def test_a_line_is_cut_at_a_length_that_no_text_of_a_mac_has() -> None:
    assert len(clean_lines("x" * 100_000)[0]) == LONGEST
