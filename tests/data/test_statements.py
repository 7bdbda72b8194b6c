"""The reader of the curated statements: what it keeps, what it refuses, and how quick it is."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Span, Version
from opcheck.data.registrations import data_directory
from opcheck.data.statement_files import read_statements
from opcheck.data.statement_model import Argument, StatementEvidence
from opcheck.data.statements import (
    INDEX,
    INDEX_SCHEMA,
    CuratedStatements,
    Index,
    dump_index,
    fingerprint,
    forget,
    load_statements,
    read_index,
)
from tests.made import make_statement

ROOT = Path(__file__).parents[2]

WHOLE = """\
schema: 1
limitations:
  - id: mm-whole
    ops: ["aten::mm", "aten::add.*"]
    effect: raises
    torch: {since: "2.5", until: null}
    macos: {until: "15.1"}
    dtypes: [float16, bfloat16]
    dtypes_of: [self]
    condition: >
      self.dim == 5
      and transposed
    when: the indices repeat
    error: {type: NotImplementedError, text: "No {n} channels."}
    summary: It has limits.
    way_out: Use another.
    links: ["https://example.org/1"]
    evidence:
      - {kind: source, torch: "2.10", where: "Made.mm", line: 841}
      - {kind: binary, torch: "2.5", detail: "present 2.5.1 to 2.15.0"}
"""


def write(directory: Path, text: str, name: str = "limitations/made.yaml") -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    forget()
    return directory


def problems(directory: Path) -> list[str]:
    with pytest.raises(OpListError) as caught:
        load_statements(directory)
    head, *lines = caught.value.message.splitlines()
    assert head.startswith("the op lists have")
    return [line.strip() for line in lines]


def test_every_field_is_kept(tmp_path: Path) -> None:
    (made,) = load_statements(write(tmp_path, WHOLE)).all
    assert made.ops == ("aten::mm", "aten::add.*")
    assert made.torch == Span(since=Version(2, 5))
    assert made.macos == Span(until=Version(15, 1))
    assert made.dtypes == ("float16", "bfloat16")
    assert made.condition == "self.dim == 5 and transposed"
    assert made.error is not None
    assert made.error.text == "No {n} channels."
    assert made.evidence[0] == StatementEvidence(kind="source", torch="2.10", where="Made.mm", line=841)
    assert (made.sort, made.when, made.links) == ("limitation", "the indices repeat", ("https://example.org/1",))


def test_advisories_are_told_apart(tmp_path: Path) -> None:
    text = WHOLE.replace("limitations:", "advisories:").replace("mm-whole", "mm-wrong")
    text = text.replace("    summary:", '    fixed: "2.10"\n    fixed_basis: pr\n    summary:')
    text = text.replace("    summary:", "    program: return torch.ones(1, device=device)\n    summary:")
    write(tmp_path, WHOLE)
    result = load_statements(write(tmp_path, text, "advisories/made.yaml"))
    assert {each.id: each.sort for each in result.all} == {"mm-whole": "limitation", "mm-wrong": "advisory"}
    advisory = result.by_id["mm-wrong"]
    assert (advisory.fixed, advisory.fixed_basis) == ("2.10", "pr")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '{since: "2.5", until: null}',
            "{since: 2.10}",
            '6 limitations.0.torch.since: write a version as "2.13", in quotes: 2.1',
        ),
        ('{until: "15.1"}', "{until: 15}", '7 limitations.0.macos.until: write a version as "2.13", in quotes: 15'),
        (
            'torch: "2.10", where',
            "torch: 2.10, where",
            "19 limitations.0.evidence.0.torch: Expected `str`, got `float`",
        ),
        (
            '{since: "2.5", until: null}',
            '{since: "2.5.1"}',
            '6 limitations.0.torch.since: write a version as "2.13", in quotes: 2.5.1',
        ),
        (
            '{since: "2.5", until: null}',
            '{since: "2.5", until: "2.5"}',
            "6 limitations.0.torch: no version lies in this span",
        ),
        ("effect: raises", "effect: explodes", "5 limitations.0.effect: Invalid enum value 'explodes'"),
        ("[float16, bfloat16]", "[half]", "8 limitations.0.dtypes.0: Invalid enum value 'half'"),
        ("[float16, bfloat16]", "[int8, int8]", "8 limitations.0.dtypes.1: listed twice: int8"),
        ("[float16, bfloat16]", "[]", "8 limitations.0.dtypes: Expected `array` of length >= 1"),
        ("[float16, bfloat16]", "int8", "8 limitations.0.dtypes: Expected `array`, got `str`"),
        ("aten::mm", "aten.mm.default", "4 limitations.0.ops.0: not an operator name:"),
        ("aten::mm", "*::mm", "4 limitations.0.ops.0: not an operator name:"),
        ("mm-whole", "MM_whole", "3 limitations.0.id: Expected `str` matching regex"),
        ("    way_out:", "    remedy:", "16 limitations.0.remedy: unknown key; known are id, ops"),
        ("    way_out:", "    fixed:", "16 limitations.0.fixed: unknown key"),
        ("    summary: It has limits.\n", "", "3 limitations.0: the key summary is missing"),
        ("    summary: It", "    id: again\n    summary: It", "15 limitations.0.id: the key occurs"),
        (
            "    condition: >\n      self.dim == 5\n      and transposed\n    when: the indices repeat\n",
            "    rare: true\n",
            "10 limitations.0.rare: a rare case needs a condition or a when",
        ),
        ("self.dim ==", "self.dim() ==", "10 limitations.0.condition: not a function of"),
        ("kind: binary", "kind: hearsay", "20 limitations.0.evidence.1.kind: Invalid enum value 'hearsay'"),
        ("kind: binary", "sort: binary", "20 limitations.0.evidence.1: Object contains unknown field `sort`"),
        ("line: 841", "lines: 841", "19 limitations.0.evidence.0: Object contains unknown field `lines`"),
        (
            "    error: {type",
            "    links: []\n    eror: {type",
            "14 limitations.0.links: Expected `array` of length >= 1",
        ),
        ("schema: 1", "schema: 2", "1 schema: the schema must be 1"),
        ("schema: 1", "schema: 1\nmore: 2", "2 more: unknown key; known are schema, limitations"),
        ("limitations:\n", "limitations: 3\nx:\n", "2 limitations: a list of statements is"),
        ("schema: 1", "schema: [1", "2: not YAML: "),
        ("It has limits.", "2024-01-02", "15 limitations.0.summary: quote it: YAML reads"),
        ("It has limits.", "{a: 1}", "15 limitations.0.summary: Expected `str`, got `object`"),
        ("It has limits.", "' '", "15 limitations.0.summary: Expected `str` matching regex"),
    ],
)
def test_what_is_refused_has_its_line_and_key(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in WHOLE
    result = problems(write(tmp_path, WHOLE.replace(old, new, 1)))
    assert [line for line in result if line.startswith(f"limitations/made.yaml:{problem}")], result


def test_what_raises_has_an_error_text(tmp_path: Path) -> None:
    lines = [line for line in WHOLE.splitlines() if "error:" not in line]
    (result,) = problems(write(tmp_path, "\n".join(lines)))
    assert result.endswith("limitations.0: the key error is missing: what does it raise?")


@pytest.mark.parametrize(
    ("kinds", "is_refused"),
    [(("pr", "inferred"), False), (("opinfo",), False), (("pr", "source"), True), (("inferred",), True)],
)
def test_a_description_of_a_change_need_not_tell_the_text(
    tmp_path: Path, kinds: tuple[str, ...], is_refused: bool
) -> None:
    head = WHOLE[: WHOLE.index("    evidence:")].splitlines()
    evidence = [f"      - {{kind: {kind}, where: somewhere}}" for kind in kinds]
    lines = [line for line in head if "error:" not in line]
    directory = write(tmp_path, "\n".join([*lines, "    evidence:", *evidence]))
    if is_refused:
        (result,) = problems(directory)
        assert result.endswith("the key error is missing: what does it raise?")
    else:
        assert [each.sort for each in load_statements(directory).all] == ["limitation"]


def test_all_problems_of_all_files_come_at_once(tmp_path: Path) -> None:
    bad = WHOLE.replace("raises", "explodes").replace("float16, b", "half, b")
    write(tmp_path, bad)
    result = problems(write(tmp_path, bad, "limitations/other.yaml"))
    assert len(result) == 4
    assert result == sorted(result)


def test_an_id_is_given_once(tmp_path: Path) -> None:
    write(tmp_path, WHOLE)
    (result,) = problems(write(tmp_path, WHOLE, "limitations/other.yaml"))
    assert result == ("limitations/other.yaml:3 limitations.0.id: the id mm-whole is taken: limitations/made.yaml:3")


def test_no_directory_holds_no_statements(tmp_path: Path) -> None:
    assert load_statements(tmp_path).all == ()


def test_the_statements_on_an_operator() -> None:
    statements = CuratedStatements(
        [
            make_statement("exact", ops=("aten::add.Tensor",)),
            make_statement("all", ops=("*",)),
            make_statement("glob", ops=("aten::add.*", "aten::add.Tensor")),
            make_statement("old", ops=("aten::add.Tensor",), torch=Span(until=Version(2, 10))),
        ]
    )
    ids = [item.id for item in statements.for_op("aten::add.Tensor")]
    assert ids == ["all", "exact", "glob", "old"]
    assert [item.id for item in statements.for_op("aten::add.Tensor", "2.10")] == ["all", "exact", "glob"]
    assert [item.id for item in statements.for_op("aten::add.Tensor", "2.9")] == ids
    assert [item.id for item in statements.for_op("aten::add.out")] == ["all", "glob"]
    assert [item.id for item in statements.for_op("aten::addmm")] == ["all"]


def test_the_index_says_what_the_yaml_says(tmp_path: Path) -> None:
    write(tmp_path, WHOLE)
    statements = read_statements(tmp_path)
    index = Index(
        schema=INDEX_SCHEMA,
        fingerprint=fingerprint(tmp_path),
        statements=statements,
        arguments={"aten::mm": {"self": Argument(), "k": Argument(optional=True, default=[1])}},
    )
    (tmp_path / INDEX).write_text(dump_index(index), encoding="utf-8")
    assert read_index(tmp_path) == index
    forget()
    assert load_statements(tmp_path).all == statements


def test_an_edit_counts_although_the_index_is_old(tmp_path: Path) -> None:
    arguments = {"aten::mm": {"self": Argument()}}
    index = Index(schema=INDEX_SCHEMA, fingerprint="", statements=(), arguments=arguments)
    (tmp_path / INDEX).write_text(dump_index(index), encoding="utf-8")
    result = load_statements(write(tmp_path, WHOLE))
    assert [item.id for item in result.all] == ["mm-whole"]
    assert result.arguments == arguments


@pytest.mark.parametrize("content", ["{", '{"schema": 99}', "[]"])
def test_a_damaged_index_is_not_used(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content, encoding="utf-8")
    assert len(load_statements(write(tmp_path, WHOLE)).all) == 1


def test_the_digest_follows_every_byte(tmp_path: Path) -> None:
    before = load_statements(write(tmp_path, WHOLE)).fingerprint
    assert len(before) == 64
    assert load_statements(write(tmp_path, WHOLE + "# a word\n")).fingerprint != before


@pytest.mark.skipif(not version("torch").startswith("2.13."), reason="the index has the defaults of 2.13's schemas")
def test_the_committed_index_is_up_to_date() -> None:
    from scripts.compile_statements import compile_index

    committed = (data_directory() / INDEX).read_text(encoding="utf-8")
    assert committed == dump_index(compile_index(data_directory())), "scripts.compile_statements"


def test_the_committed_index_holds_what_the_files_hold() -> None:
    index = read_index(data_directory())
    assert index is not None
    assert index.statements == tuple(sorted(read_statements(data_directory()), key=lambda item: item.id))
    assert msgspec.json.decode(dump_index(index).encode(), type=Index) == index
