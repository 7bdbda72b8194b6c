from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from opcheck.common.catalogue import CatalogueRule, by_id, groups
from opcheck.data.registrations import OpLists
from opcheck.features import documents
from opcheck.judge.remedies import REMEDIES, Remedy
from tests.command_line import CommandLine


@pytest.mark.parametrize("rule", by_id().values(), ids=lambda rule: rule.id)
def test_every_finding_has_a_page(opcheck: CommandLine, rule: CatalogueRule) -> None:
    result = opcheck("explain", rule.id.lower())
    assert result.code == 0
    assert result.out.startswith(f"# {rule.id} {rule.slug}: {rule.title}\n\n**What.** ")


def test_without_an_id_every_rule_has_a_line_below_its_verb(opcheck: CommandLine) -> None:
    assert len(opcheck("explain").out.splitlines()) <= 15
    text = opcheck("explain", "-v").out
    blocks = text.partition("\n\nRemedies\n")[0].split("\n\n")
    for (title, rules), block in zip(groups().items(), blocks, strict=True):
        heading, *lines = block.splitlines()
        assert heading == title
        assert [line.split()[0] for line in lines] == [rule.id for rule in rules]
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy.id)
def test_every_remedy_has_a_line_and_a_page(opcheck: CommandLine, remedy: Remedy) -> None:
    assert f"\n  {remedy.id} " in opcheck("explain", "-v").out
    page = opcheck("explain", remedy.id.replace("_", "-"), "-v").out
    assert page.startswith(f"# {remedy.id}: {remedy.title}\n")
    assert remedy.code() in page


def test_an_unknown_id_names_the_known_ones(opcheck: CommandLine) -> None:
    result = opcheck("explain", "OC999")
    assert result.code == 2
    assert result.err.splitlines()[0] == "unknown finding: 'OC999'"
    assert result.err.splitlines()[2] == "  help: opcheck explain -v lists all of them"
    assert "did you mean complex_mul" in opcheck("explain", "complexmul").err


NET = """import torch

x = torch.ones(2).cuda()


def net(x):
    return torch.relu(x) + x.nonzero().sum()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan", "a.py"),
        ("doctor",),
        ("op", "linalg.svd"),
        ("op", "nn.LSTM", "--torch", "2.9"),
        ("history", "embedding_renorm_"),
        pytest.param(("diff", "2.12", "2.13"), marks=pytest.mark.slow),
        pytest.param(("compile", "b.py:net", "--input", "4", "-q"), marks=pytest.mark.slow),
        pytest.param(("compare", "b.py:net", "--input", "4", "--device", "cpu", "-q"), marks=pytest.mark.slow),
        pytest.param(("probe", "--op", "sin", "--device", "cpu", "--limit", "2", "-q"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_saved_document_is_what_its_schema_says(
    opcheck: CommandLine, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "a.py").write_text(NET, encoding="utf-8")
    (tmp_path / "b.py").write_text(NET.replace(".cuda()", ""), encoding="utf-8")
    name = {"probe": "evidence"}.get(arguments[0], arguments[0])
    schema = Draft202012Validator(json.loads(opcheck("explain", "schema", name).out))
    written = json.loads(opcheck(*arguments, "-f", "json").out)
    assert [(list(error.path), error.message) for error in schema.iter_errors(written)] == []
    assert list(schema.iter_errors({**written, "more": 1}))
    del written["schema"]
    assert list(schema.iter_errors(written))


def test_every_saved_document_has_a_schema_and_no_other(opcheck: CommandLine) -> None:
    for name in documents():
        schema = json.loads(opcheck("explain", "schema", name).out)
        Draft202012Validator.check_schema(schema)
        assert schema["title"] == schema["properties"]["schema"]["enum"][0]
    assert opcheck("explain", "schema").out == opcheck("explain", "schema", "report").out
    unknown = opcheck("explain", "schema", "nope")
    assert (unknown.code, len(unknown.err.splitlines())) == (2, 3)
    assert opcheck("explain", "OC101", "OC102").code == 2


def test_a_statement_has_a_page_with_the_program_that_shows_it(opcheck: CommandLine) -> None:
    result = opcheck("explain", "sdpa-scale-of-an-earlier-call", "-v")
    assert result.code == 0
    assert result.out.startswith("# sdpa-scale-of-an-earlier-call: The scale of the first call")
    program = result.out.partition("```python\n")[2].partition("```")[0]
    compile(program, "program", "exec")
    assert "```python" not in opcheck("explain", "bmm-2-32", "-v").out


def test_a_page_has_at_most_15_lines_and_says_what_to_do(opcheck: CommandLine, lists: OpLists) -> None:
    names = [*by_id(), *(remedy.id for remedy in REMEDIES), *lists.statements.by_id]
    for name in names:
        lines = opcheck("explain", name).out.splitlines()
        assert len(lines) <= 15, name
        assert lines[-1] == "More, with examples and evidence: -v."
    for rule in by_id():
        out = opcheck("explain", rule).out
        assert any(f"**{title}.**" in out for title in ("Way out", "Fix", "After")), rule
