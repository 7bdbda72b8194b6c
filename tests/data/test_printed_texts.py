"""What the texts of statements print: their fields are filled from the call."""

from __future__ import annotations

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.messages import FIELD, OF_CALLS, fill_text
from opcheck.data.registrations import load
from opcheck.data.statement_model import Statement
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall, TensorSpec

#: Values of a kernel, of its file or of a size that no call tells: they print as "...".
OF_KERNELS = frozenset(
    [
        "...",
        "file",
        "line",
        "kernel",
        "error",
        "bytes",
        "limit",
        "rows",
        "columns",
        "size",
        "left",
        "right",
        "front",
        "back",
        "dim",
        "lowest",
        "highest",
        "mode",
        "recipe_a",
        "recipe_b",
    ]
)


def call_of(op: str, dtype: str) -> OpCall:
    spec = TensorSpec(tensor=0, storage=0, dtype=dtype, shape=(2, 3), stride=(3, 1), device="mps", argument="self")
    return OpCall(op=op, inputs=(spec,))


@pytest.mark.parametrize(
    "statement",
    [statement for statement in load().statements.all if statement.error],
    ids=lambda statement: statement.id,
)
def test_no_field_of_a_statement_stays_unfilled(statement: Statement) -> None:
    assert statement.error is not None
    fields = set(FIELD.findall(statement.error.text))
    assert fields <= OF_CALLS | OF_KERNELS
    call = call_of(statement.ops[0], next(iter(statement.dtypes), "float32"))
    printed = fill_text(statement.error.text, call, statement.dtypes)
    assert FIELD.search(printed) is None
    assert ("..." in printed) >= bool(fields - OF_CALLS)


def test_a_verdict_prints_the_name_of_the_operation() -> None:
    call = OpCall(op="aten::cumsum", inputs=call_of("", "int64").inputs, arguments={"dim": 0, "dtype": None})
    target = Target(torch=Version(2, 2), macos=Version(13, 0))
    assert judge(call, target, load()).prints == (
        "MPS does not support cumsum_out_mps op with int64 input. Support has been added in macOS 13.3"
    )


def test_a_text_without_a_call_shows_that_a_value_is_missing() -> None:
    assert fill_text("unique is not supported for {dtype}") == "unique is not supported for ..."
    assert fill_text("got {...}", call_of("aten::cat", "int8")) == "got ..."
    assert fill_text("{dtype}", call_of("aten::cat", "int8"), ("int8",)) == "Char"
