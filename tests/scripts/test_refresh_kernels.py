"""The report of the kernels' runs: each wrong result is stated, or a reason says why it is not."""

from __future__ import annotations

from opcheck.data.registrations import data_directory
from opcheck.data.statement_files import read_statements
from scripts.refresh_kernels import REPORT, findings


def test_a_wrong_result_is_stated_by_a_statement_that_exists_or_has_a_reason() -> None:
    known = {statement.id: statement for statement in read_statements(data_directory())}
    for (operation, dtype), answer in findings().items():
        if answer.startswith("none: "):
            assert len(answer) > 30, operation
        else:
            dtypes = known[answer].dtypes
            assert not dtypes or dtype in dtypes or dtype.startswith(("int", "uint")), (operation, dtype)


def test_no_wrong_result_of_the_newest_run_is_open() -> None:
    rows = REPORT.read_text(encoding="utf-8").split("## Wrong results of torch", 1)[1].splitlines()
    assert [row for row in rows if row.endswith("| open |")] == []
    assert sum(row.startswith("| `") for row in rows) > 50
