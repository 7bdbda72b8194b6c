"""The program that shows on a Mac whether a fault bites whose condition no run on shapes can evaluate."""

from __future__ import annotations

import textwrap

_PROGRAM = """\
import torch


def result(device):
{body}


expected, actual = result("cpu"), result("mps").cpu()
same = expected.shape == actual.shape and expected.dtype == actual.dtype
print("right" if same and torch.allclose(actual, expected, rtol=1e-3, equal_nan=True) else "wrong")
"""


def program_text(body: str) -> str:
    """Return the program around the body of ``result``: it prints ``right`` or ``wrong`` on a Mac.

    Args:
        body: statements that return a tensor, made on ``device``.
    """
    return _PROGRAM.format(body=textwrap.indent(body.strip("\n"), "    "))
