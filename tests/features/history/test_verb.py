from __future__ import annotations

import json

from tests.command_line import CommandLine


def test_each_change_is_a_row_with_its_reason(opcheck: CommandLine) -> None:
    rows = [
        " ".join(line.split()) for line in opcheck("history", "aten::linalg_matrix_exp", "--releases").out.splitlines()
    ]
    assert rows[0] == (
        "aten::linalg_matrix_exp: CPU fallback, with the variable in 1.13, native since 2.14 on macOS 26.0"
    )
    assert any(row.startswith("2.14 native better aten::linalg_matrix_exp: cpu_only -> kernel") for row in rows)


def test_json(opcheck: CommandLine) -> None:
    content = json.loads(opcheck("history", "aten::nonzero", "--macos", "14", "-f", "json").out)
    assert content["schema"] == "opcheck-history/1"
    assert content["overloads"][0]["name"] == "aten::nonzero"
    assert content["overloads"][0]["steps"][0]["change"] == "first"


def test_no_such_operator(opcheck: CommandLine) -> None:
    result = opcheck("history", "aten::nope_nope")
    assert (result.code, result.out) == (2, "")
