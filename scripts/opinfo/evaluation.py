"""The results that PyTorch's own CI expects on MPS, by operator and dtype (2.8 and later).

An expected failure supports a limitation.  A pass alone does not prove that a call is native: the
call may have fallen back, and the CI runs only the samples of PyTorch's operator database.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from opcheck.data.registrations import data_directory
from opcheck.data.tables import ListFile

DIRECTORY = "opinfo"
SCHEMA = 1

#: One letter per dtype, in the order in which the files write them.
LETTERS: Mapping[str, str] = MappingProxyType(
    {"f": "float32", "h": "float16", "b": "bfloat16", "c": "complex64", "k": "complex32"}
    | {"1": "int8", "2": "int16", "4": "int32", "8": "int64", "u": "uint8", "o": "bool"}
)

State = Literal["pass", "xfail", "skip"]
#: forward results, and gradients.
Pass = Literal["forward", "gradient"]
PASSES: tuple[Pass, Pass] = ("forward", "gradient")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The CI's lists of a release with its operator database, and the calls of its samples."""

    schema: int
    torch: str
    #: the macOS version of the rows that name no version.
    macos: str
    samples: int
    #: every overload that a row refers to by its number.
    overloads: tuple[str, ...]
    #: OpInfo (``name`` or ``name/variant``) -> pass -> its row (op_lists/README.md)
    opinfos: dict[str, dict[str, dict[str, Any]]]

    def dtypes(self, opinfo: str, kind: Pass = "forward", macos: str = "") -> dict[str, State]:
        """Return the dtypes that the CI runs an OpInfo with, and the expected state; empty for an unknown OpInfo."""
        row = self.opinfos.get(opinfo, {}).get(kind, {})
        row = row.get(f"macos {macos}", row)
        states: dict[str, State] = {LETTERS[letter]: "pass" for letter in row.get("ran", "")}
        for state in ("xfail", "skip"):
            states |= {LETTERS[letter]: state for letter in row.get(state, "")}
        return states

    def calls(self, opinfo: str, kind: Pass = "forward") -> tuple[str, ...]:
        """Return the overloads that an OpInfo's samples reach on the simulated Mac; gradient has only additions."""
        numbers = self.opinfos.get(opinfo, {}).get(kind, {}).get("calls", ())
        return tuple(self.overloads[number] for number in numbers)

    def failed(self, opinfo: str, kind: Pass = "forward") -> tuple[str, ...]:
        """Return the dtypes with which some sample could not run on the simulated Mac."""
        letters = self.opinfos.get(opinfo, {}).get(kind, {}).get("failed", "")
        return tuple(LETTERS[letter] for letter in letters)


def lines(directory: Path | None = None) -> tuple[str, ...]:
    """Return the release lines that have evidence, in no particular order."""
    return tuple(sorted(path.stem for path in _directory(directory).glob("*.json")))


def read(line: str, directory: Path | None = None) -> Evaluation | None:
    """Read the evidence of a release line; None before 2.8, because the wheels did not have the lists.

    Raises:
        OpListError: the file is damaged, or of another form.
    """
    if not (_directory(directory) / f"{line}.json").exists():
        return None
    return _file(line).load(directory)


def _directory(directory: Path | None) -> Path:
    return (directory or data_directory()) / DIRECTORY


@functools.cache
def _file(line: str) -> ListFile[Evaluation]:
    made_by = "python -m scripts.run_opinfo_all"
    return ListFile(f"{DIRECTORY}/{line}.json", Evaluation, made_by=made_by)
