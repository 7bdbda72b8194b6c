from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcheck.common.errors import UsageError
from opcheck.common.names import DTYPES, OperatorName, parse_dtype

_WORD = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
_NAMES = st.builds(
    OperatorName,
    namespace=_WORD,
    name=_WORD,
    overload=st.one_of(st.just(""), _WORD.filter(lambda word: word != "default")),
)


@given(_NAMES)
def test_parse_reads_back_what_str_writes(name: OperatorName) -> None:
    assert OperatorName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text", ["", "mm", "aten.mm", "aten::", "aten::mm.", "aten::mm.default", "aten::a.b.c", "a::b "]
)
def test_what_is_no_operator_name(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        OperatorName.parse(text)
    assert caught.value.message == f"not an operator name: {text!r}"


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_has_its_own_name(name: str) -> None:
    assert parse_dtype(name) == name
    assert parse_dtype(f"torch.{name}") == name


@pytest.mark.parametrize(("alias", "name"), [("half", "float16"), ("double", "float64"), ("torch.long", "int64")])
def test_dtype_aliases(alias: str, name: str) -> None:
    assert parse_dtype(alias) == name


def test_an_unknown_dtype_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        parse_dtype("float33")
    assert "float32" in caught.value.hint
