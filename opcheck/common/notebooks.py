"""The code in Jupyter's notebooks: read by the scan, loaded by an audit, run by ``opcheck run``."""

import ast
import asyncio
import inspect
import json
import linecache
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opcheck.common import documents
from opcheck.common.errors import explain_errors
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


#: IPython's own syntax at the start of a line (IPython/core/inputtransformer2.py): ``%matplotlib inline``, ``!ls``,
#: ``?name``, ``name?``. A line that begins with ``% (`` or ``!=`` continues with the expression of the line before.
_MAGIC = re.compile(r"%%?[A-Za-z]|!(?!=)|\?|[%\w.\[\]*]+\?\??\s*$")
#: The same behind ``name =``.
_ASSIGNED = re.compile(r"(?P<target>[\w.,\s\[\]]+=)\s*(?:!(?!=)|%[A-Za-z])")


def without_magics(text: str) -> list[str]:
    """Return the lines of a cell, with ``pass`` in place of the syntax of IPython."""
    lines = split_lines(text)
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return [""] * len(lines)
    if _is_python(text):
        return lines
    plain, continues = [], False
    for line in lines:
        # A shell command may continue in the next lines.
        plain.append("" if continues else _plain(line))
        is_command = continues or plain[-1] != line
        continues = is_command and line.endswith("\\")
    return plain


def _is_python(text: str) -> bool:
    try:
        _compile(text, "", ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _plain(line: str) -> str:
    code = line.lstrip()
    indentation = line[: len(line) - len(code)]
    if _MAGIC.match(code):
        return f"{indentation}pass"
    assigned = _ASSIGNED.match(code)
    # IPython gives a list of the lines that a command prints.
    return f"{indentation}{assigned['target']} []" if assigned else line


def _compile(text: str, name: str, flags: int = 0) -> Any:
    """Compile a cell; ``await`` is allowed outside of functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parser warns of escapes
        allowed = flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile(text, name, "exec", flags=allowed, dont_inherit=True)


def read_cells(path: Path) -> list[tuple[int, str]]:
    """Return the code cells of a file with their numbers.

    Raises:
        UsageError: it cannot be read as a notebook.
    """
    with explain_errors(
        (ValueError, AttributeError, TypeError, KeyError, RecursionError),
        f"{path.name} is not a notebook",
        context=path,
        hint="save it again with Jupyter, or name a Python file",
    ):
        return list(code_cells(documents.read(path, _LARGEST)))


def run(path: Path, namespace: dict[str, Any]) -> None:
    """Run the code cells in turn, as Jupyter does, without magics and shell commands; ``display`` prints.

    The file of a cell is named ``PATH#cell-3``, so that tracebacks and findings name the cell of a line.

    Raises:
        UsageError: as ``read_cells``.
        Exception: whatever a cell raises.
    """
    namespace.setdefault("display", print)
    for number, text in read_cells(path):
        lines = without_magics(text)
        name = f"{path}#cell-{number}"
        source = "\n".join(lines) + "\n"
        linecache.cache[name] = (len(source), None, [f"{line}\n" for line in lines], name)
        code = _compile(source, name)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, namespace))  # noqa: S307 - this is what it is for
        else:
            exec(code, namespace)  # noqa: S102 - this is what it is for
