from __future__ import annotations

import ast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opcheck.common.versions import Span, Target, Version
from opcheck.data.conditions import ATTRIBUTES, FUNCTIONS, ConditionError, parse
from opcheck.data.matching import match, values
from opcheck.data.statement_model import Argument, Arguments, Statement
from opcheck.model.records import OpCall
from tests.made import make_statement, make_target, spec

SELF = spec(1, argument="self", shape=(2, 3, 4), stride=(12, 4, 1))
TURNED = spec(2, argument="weight", shape=(3, 2), stride=(1, 3), dtype="complex64")
CALL = OpCall(
    op="aten::made",
    inputs=(SELF, TURNED, spec(3, argument="tensors"), spec(4, argument="tensors", shape=(5,))),
    outputs=(spec(5, shape=(70000,), stride=(1,)),),
    arguments={"dim": 1, "sizes": (4, 6), "mode": "mean", "bias": None, "training": True, "p": "inf"},
)
SCHEMA = {
    "alpha": Argument(optional=True, default=1),
    "pad": Argument(optional=True, default=[0, 0]),
    "generator": Argument(),
    "one": Argument(tensors=True),
}


def holds(statement: Statement, call: OpCall, target: Target, arguments: Arguments | None = None) -> bool | None:
    return match((statement,), call, target, arguments).answers[0][1]


def answer(text: str, call: OpCall = CALL) -> bool | None:
    condition = parse(text)
    return condition.evaluate(values(call, condition.names, SCHEMA))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self.dim == 3 and training", True),
        ("self.shape[1] % 2 == 0", False),
        ("self.shape[-1] == 4", True),
        ("self.shape[1:] == (3, 4)", True),
        ("self.shape == [2, 3, 4]", True),
        ("self.numel == prod(self.shape) == 24", True),
        ("self.contiguous and not weight.contiguous", True),
        ("weight.stride == (1, 3)", True),
        ("weight.is_complex and not weight.is_floating", True),
        ("self.dtype == 'float32' and self.is_floating", True),
        ("self.nbytes == 96 and self.device == 'mps'", True),
        ("any(size > 65536 for size in result.shape)", True),
        ("all(one % other == 0 for one, other in zip(sizes, (2, 3)))", True),
        ("len(tensors) == 2 and max(t.dim for t in tensors) == 2", True),
        ("sum(sizes) == 10 and abs(-dim) == 1 and min(4, 5) == 4", True),
        ("any(sizes[i] > 5 for i in range(len(sizes)) if i > 0)", True),
        ("mode in ('mean', 'sum') and mode not in ['none']", True),
        ("bias is None", True),
        ("p > 1000 and -p < 0", True),
        ("bias is not None and bias.dim == 3", False),
        ("alpha == 1 and pad == (0, 0)", True),
        ("(1 if training else 0) + dim ** 2 - 7 // 2 == -1", True),
        # numbers in place of tensors
        ("p.is_floating and not dim.is_floating and not p.is_complex", True),
        ("dim.dim == 0 and dim.shape == () and dim.numel == 1 and dim.contiguous and dim.device == 'cpu'", True),
        ("dim.dtype == 'int64'", None),
        # what the call does not tell
        ("generator is None", None),
        ("missing > 1", None),
        ("missing > 1 or training", True),
        ("missing > 1 and not training", False),
        ("training and missing > 1", None),
        ("self.shape[7] == 1", None),
        ("self.dim == 2 and self.shape[7] == 1", False),
        ("dim / 0 == 1", None),
        ("mode > 3", None),
        ("bias.dim == 3", None),
        ("max(()) == 1", None),
        ("self + 1 == 2", None),
        ("any(True for i in range(10 ** 9))", None),
        ("10 ** 100000 > 1", None),
        ("'a' * 1000 == 'b'", None),
        ("(-8) ** 0.5 == 1", None),
    ],
)
def test_evaluation(text: str, expected: bool | None) -> None:
    assert answer(text) is expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("self.", "not an expression"),
        ("self.__class__", "not an attribute of conditions: .__class__"),
        ("self.dim()", "not a function of conditions: self.dim"),
        ("open('x')", "not a function of conditions: open"),
        ("(lambda: 1)()", "not a function of conditions"),
        ("lambda: 1", "not allowed in a condition"),
        ("{1: 2}", "not allowed in a condition"),
        ("f'{self}'", "not allowed in a condition"),
        ("(x := 1)", "not allowed in a condition"),
        ("1 << 2", "not allowed in a condition"),
        ("~dim", "not allowed in a condition"),
        ("1j == dim", "not allowed in a condition"),
        ("b'x' == dim", "not allowed in a condition"),
        ("max(*sizes)", "not allowed in a condition"),
        ("max(sizes, key=len)", "positional arguments only"),
        ("any()", "positional arguments only"),
        ("any(x for x.y in sizes)", "not allowed as a loop variable"),
        ("any(x for a in sizes for b in sizes for x in sizes)", "more than 2 loops"),
        ("await self", "not allowed in a condition"),
        ("x = 1", "not an expression"),
    ],
)
def test_what_is_no_condition(text: str, says: str) -> None:
    with pytest.raises(ConditionError, match=says.replace("(", r"\(")):
        parse(text)


def test_the_names_that_a_condition_asks_for() -> None:
    names = parse("any(i > self.dim for i in sizes if i) and result.numel > alpha").names
    assert names == {"self", "sizes", "result", "alpha"}


def test_a_list_of_one_tensor_is_a_list_where_the_schema_says_so() -> None:
    call = OpCall(op="aten::made", inputs=(spec(1, argument="one"),))
    assert answer("len(one) == 1", call) is True


def test_a_default_counts_only_for_a_call_that_was_seen() -> None:
    assert answer("alpha == 1", OpCall(op="aten::made")) is None


_NAMES = ["self", "weight", "result", "dim", "sizes", "mode", "bias", "missing", "tensors"]
_LEAVES = st.one_of(
    st.sampled_from(_NAMES),
    st.integers(-3, 10**30).map(repr),
    st.floats().map(repr).filter(lambda text: "n" not in text),
    st.sampled_from(["True", "None", "'mean'", "()", "(1, 2)", "[]"]),
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["+", "-", "*", "/", "//", "%", "**", "==", "<", "in", "is", "and", "or"]
    return st.one_of(
        st.tuples(inner, st.sampled_from(operators), inner).map(lambda p: f"({' '.join(p)})"),
        st.tuples(st.sampled_from(sorted(FUNCTIONS)), inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(inner, st.sampled_from(sorted(ATTRIBUTES))).map(lambda p: f"({p[0]}).{p[1]}"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]})[{p[1]}]"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]})[:{p[1]}]"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"[{p[0]} for x in ({p[1]})]"),
        inner.map(lambda text: f"(not {text})"),
        inner.map(lambda text: f"(-{text})"),
    )


@settings(deadline=None)
@given(st.recursive(_LEAVES, _grow, max_leaves=8))
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_every_parsed_expression_has_an_answer_on_every_call(text: str) -> None:
    try:
        parsed = parse(text)
    except ConditionError:  # more loops inside each other than are allowed
        assume(text.count(" for ") <= 2)
        raise
    for call in (CALL, OpCall(op="aten::made"), OpCall(op="aten::made", inputs=(spec(1),))):
        assert parsed.evaluate(values(call, parsed.names, SCHEMA)) in {True, False, None}


@given(st.text(max_size=20))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        parsed = parse(text)
    except ConditionError:
        return
    assert isinstance(ast.parse(text, mode="eval"), ast.Expression)
    assert parsed.evaluate({}) in {True, False, None}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"torch": Span(since=Version(2, 14))}, False),
        ({"torch": Span(until=Version(2, 13))}, False),
        ({"macos": Span(until=Version(15, 0))}, False),
        ({"macos": Span(since=Version(15, 0))}, True),
        ({"dtypes": ("float16",)}, False),
        ({"dtypes": ("float16", "complex64")}, True),
        ({"dtypes": ("complex64",), "dtypes_of": ("self",)}, False),
        ({"dtypes": ("complex64",), "dtypes_of": ("weight",)}, True),
        ({"dtypes": ("float32",), "dtypes_of": ("result",)}, True),
        ({"dtypes": ("float32",), "dtypes_of": ("bias",)}, False),
        ({"condition": "dim == 1"}, True),
        ({"condition": "dim == 2"}, False),
        ({"condition": "missing == 2"}, None),
        ({"condition": "missing == 2", "dtypes": ("float16",)}, False),
        ({"when": "values repeat"}, None),
        ({"when": "values repeat", "condition": "dim == 1"}, None),
        ({"when": "values repeat", "condition": "dim == 2"}, False),
    ],
)
def test_when_a_statement_holds(fields: dict[str, object], expected: bool | None) -> None:
    assert holds(make_statement("made", **fields), CALL, make_target(), SCHEMA) is expected


def test_nothing_is_told_by_a_call_without_tensors() -> None:
    statement = make_statement("made", dtypes=("float16",))
    assert holds(statement, OpCall(op="aten::made"), make_target()) is None
    of = make_statement("made", dtypes=("float16",), dtypes_of=("self",))
    assert holds(of, OpCall(op="aten::made", inputs=(spec(1),)), make_target()) is None


def test_a_tensor_on_the_cpu_has_no_dtype_to_refuse() -> None:
    statement = make_statement("made", dtypes=("float64",))
    on_cpu = OpCall(op="aten::made", inputs=(spec(1, dtype="float64", device="cpu"),))
    assert holds(statement, on_cpu, make_target()) is False


def test_an_argument_may_have_the_name_of_a_function() -> None:
    condition = parse("min is not None and max(1, min) > 2")
    assert condition.names == {"min"}
    assert condition.evaluate({"min": 3}) is True
    assert condition.evaluate({"min": None}) is False
