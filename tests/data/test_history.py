"""The history form: encode and expand are inverse, and the order of builds leaves no trace."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from opcheck.data.history import History, by_version, contract, dump, expand, with_column

LINES = ["1.13", "2.0", "2.1", "2.9", "2.10", "2.11"]
VALUES = st.sampled_from(["kernel", "cpu_only", "composite_implicit"])
COLUMN = st.dictionaries(st.sampled_from(["aten::a", "aten::b", "aten::c.out"]), VALUES)
MATRIX = st.dictionaries(st.sampled_from(LINES), COLUMN, min_size=1)


def test_2_9_comes_before_2_10() -> None:
    assert by_version(["2.10", "1.13", "2.9"]) == ["1.13", "2.9", "2.10"]


def test_a_value_holds_until_the_next_entry() -> None:
    history = (("2.0", "cpu_only"), ("2.9", None), ("2.10", "kernel"))
    assert expand(history, LINES) == {"2.0": "cpu_only", "2.1": "cpu_only", "2.10": "kernel", "2.11": "kernel"}


@given(st.dictionaries(st.sampled_from(LINES), VALUES))
def test_expanding_gives_back_what_was_contracted(values: dict[str, str]) -> None:
    assert expand(contract(values, LINES), LINES) == values


@given(st.dictionaries(st.sampled_from(LINES), VALUES))
def test_the_encoding_is_minimal(values: dict[str, str]) -> None:
    entries = contract(values, LINES)
    assert all(item[1] != other[1] for item, other in pairwise(entries))
    assert not entries or entries[0][1] is not None


def built(order: list[str], matrix: dict[str, dict[str, str]]) -> str:
    operators: dict[str, tuple[tuple[str, str | None], ...]] = {}
    for index, line in enumerate(order):
        earlier = by_version(set(order[:index]))
        operators = with_column(operators, earlier, line, matrix[line])
    return dump(History(schema=1, namespace="aten", key="MPS", operators=operators))


@given(MATRIX.flatmap(lambda m: st.tuples(st.just(m), st.permutations(sorted(m)))))
def test_the_order_of_builds_leaves_no_trace(made: tuple[dict[str, dict[str, str]], list[str]]) -> None:
    matrix, order = made
    text = built(order, matrix)
    assert text == built(by_version(matrix), matrix)
    operators = msgspec.json.decode(text, type=History).operators
    lines = by_version(matrix)
    for line, column in matrix.items():
        results = {name: expand(history, lines).get(line) for name, history in operators.items()}
        assert {name: value for name, value in results.items() if value} == column


@given(MATRIX, COLUMN)
def test_building_a_release_again_replaces_its_column(
    matrix: dict[str, dict[str, str]], column: dict[str, str]
) -> None:
    lines = by_version(matrix)
    again = {**matrix, lines[0]: column}
    assert built([*lines, lines[0]], matrix) == built(lines, matrix)
    operators = msgspec.json.decode(built(lines, matrix), type=History).operators
    replaced = with_column(operators, lines, lines[0], column)
    text = dump(History(schema=1, namespace="aten", key="MPS", operators=replaced))
    assert text == built(lines, again)


def test_the_text_has_one_overload_a_line_and_no_trailing_space() -> None:
    history = History(
        schema=1,
        namespace="aten",
        key="MPS",
        operators={"aten::b": (("2.0", "kernel"),), "aten::a": (("1.13", "x"), ("2.0", None))},
    )
    assert dump(history) == (
        '{"schema": 1, "namespace": "aten", "key": "MPS",\n'
        '"operators": {\n'
        '"aten::a": [["1.13","x"],["2.0",null]],\n'
        '"aten::b": [["2.0","kernel"]]\n'
        "}}\n"
    )
