"""Expected failures that say nothing of MPS: op_lists/opinfo/reference.yaml.  No torch."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from opcheck.data.registrations import data_directory
from opcheck.data.tables import ListFile

FILE = "opinfo/reference.yaml"
_HEAD = """\
# Expected failures that say nothing of MPS, by what the CPU alone does: pass, OpInfo, dtypes.
# Written by scripts/opinfo_reference.py with the torch named here; README.md says how it is used.
"""

#: The keys of the file, and what each says of the test; the first that names it counts.
REASONS = {
    "raises": "the CPU that MPS is compared with raises",
    "copied": "the test's copy of the input lacks the memory around it, which the call reads",
    "unwritten": "the result shows memory that nothing has written, on the CPU, too",
    "random": "the result depends on the seed, and MPS draws other numbers than the CPU",
}

#: pass -> OpInfo -> dtypes
Rows = dict[str, dict[str, tuple[str, ...]]]


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tests that the CPU of one release fails by itself, or against itself."""

    schema: int
    torch: str
    raises: Rows
    copied: Rows = {}
    unwritten: Rows = {}
    random: Rows = {}

    def why(self, kind: str, opinfo: str, dtype: str) -> str:
        """Return why an expected failure of the test says nothing of MPS; empty where nothing is in the way."""
        kinds = ("forward",) if kind == "forward" else ("forward", kind)
        for reason, text in REASONS.items():
            rows: Rows = getattr(self, reason)
            if any(dtype in rows.get(name, {}).get(opinfo, ()) for name in kinds):
                return text
        return ""


#: The file.
TABLE = ListFile(FILE, Reference, made_by="python -m scripts.opinfo_reference")


def write(torch: str, rows: Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]) -> None:
    """Write the file, one OpInfo a line; ``rows`` has each reason's, by pass."""
    lines = [f'{_HEAD}schema: 1\ntorch: "{torch}"\n']
    for reason in REASONS:
        lines.append(f"{reason}:\n")
        for kind, by_name in rows[reason].items():
            lines.append(f"  {kind}:\n" if by_name else f"  {kind}: {{}}\n")
            lines += [f"    {json.dumps(name)}: [{', '.join(dtypes)}]\n" for name, dtypes in sorted(by_name.items())]
    (data_directory() / FILE).write_text("".join(lines), encoding="utf-8")
