"""The code in Jupyter's notebooks: read by the scan, loaded by an audit, run by ``opcheck run``."""

from __future__ import annotations

import json
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.python_source import split_lines

SUFFIX = ".ipynb"
_LARGEST = 50_000_000


def code_cells(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each code cell; the numbers count all cells from 1.

    Raises:
        ValueError, AttributeError, TypeError, KeyError, RecursionError: it is no notebook.
    """
    # Not documents.from_json: Jupyter writes NaN into outputs, which is no JSON.
    document = json.loads(content)
    sheets = document.get("worksheets", [document])  # the form before version 4
    number = 0
    for sheet in sheets:
        for cell in sheet["cells"]:
            number += 1
            if cell["cell_type"] == "code":
                text = cell.get("source", cell.get("input", ""))
                yield number, text if isinstance(text, str) else "".join(text)


def without_magics(text: str) -> list[str]:
    """Return the lines of a cell, with ``pass`` in place of the syntax of IPython."""
    lines = split_lines(text)
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return [""] * len(lines)
    plain, continues = [], False
    for line in lines:
        # A shell command may go on in the next lines.
        plain.append("" if continues else _plain(line))
        is_command = continues or plain[-1] != line
        continues = is_command and line.endswith("\\")
    return plain


def _plain(line: str) -> str:
    code = line.lstrip()
    is_magic = code.startswith(("%", "!", "?")) or code.rstrip().endswith("?")
    return f"{line[: len(line) - len(code)]}pass" if is_magic and not code.startswith("#") else line


def run(path: Path, namespace: dict[str, Any]) -> None:
    """Run the code cells in turn, as Jupyter does, without magics and shell commands.

    A cell's file is named ``PATH#cell-3``, so that tracebacks and findings say in which cell a line stands.

    Raises:
        UsageError: it cannot be read as a notebook.
        Exception: whatever a cell raises.
    """
    try:
        cells = list(code_cells(documents.read(path, _LARGEST)))
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(
            f"{path.name} is not a notebook: {error}",
            context=str(path),
            hint="save it again with Jupyter, or name a Python file",
        ) from error
    for number, text in cells:
        lines = without_magics(text)
        name = f"{path}#cell-{number}"
        source = "\n".join(lines) + "\n"
        linecache.cache[name] = (len(source), None, [f"{line}\n" for line in lines], name)
        code = compile(source, name, "exec", dont_inherit=True)
        exec(code, namespace)  # noqa: S102 - this is what it is for
