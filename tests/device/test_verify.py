"""A prediction held against an observation, and what is proposed of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from opcheck import cli
from opcheck.common.errors import UsageError
from opcheck.common.vocabulary import Confidence, Status
from opcheck.data.registrations import OpLists
from opcheck.data.statement_files import read_written
from opcheck.device.verify import Verification, calls_of, draft_statements, verify
from opcheck.judge.assembly import report
from opcheck.model.records import CallGroup, CaptureFacts, GroupLocation, Report, ReportTarget
from opcheck.model.saved import json_schema, read
from opcheck.render import render
from tests.made import call, make_lists, make_report, make_target, make_trace

TARGET = ReportTarget(torch="2.13", macos="15.0", cpu_fallback=True)


def place(op: str, status: Status, line: str = "net.py:3", **others: object) -> CallGroup:
    content = {
        "op": op,
        "status": status,
        "because": "",
        "count": 1,
        "locations": (GroupLocation(line=line),),
        "dtypes": ("float32",),
        **others,
    }
    return CallGroup(**content)  # type: ignore[arg-type]


def made_report(*groups: CallGroup, target: ReportTarget = TARGET, observed: bool = False) -> Report:
    confidence: Confidence = "observed" if observed else "registration"
    packages = {"machine": "Apple M2", "macos build": "24D81"} if observed else {}
    return msgspec.structs.replace(
        make_report(),
        target=target,
        groups=tuple(msgspec.structs.replace(group, confidence=confidence) for group in groups),
        capture=CaptureFacts(tracer="mac" if observed else "dispatch", complete=True, packages=packages),
    )


def seen(*groups: CallGroup, target: ReportTarget = TARGET) -> Report:
    return made_report(*groups, target=target, observed=True)


def test_calls_are_matched_by_operator_line_and_dtype(lists: OpLists) -> None:
    prediction = made_report(
        place("aten::add.Tensor", "native", "/home/a/net.py:3"),
        place("aten::add.Tensor", "unsupported", "/home/a/net.py:4", dtypes=("float64",)),
        place("aten::linalg_qr", "fallback", "net.py:5", named="aten::linalg_qr.out"),
        place("aten::mm", "native", "net.py:6"),
    )
    observation = seen(
        place("aten::add.Tensor", "native", "a/net.py:3"),
        place("aten::add.Tensor", "unsupported", "a/net.py:4", dtypes=("float64",)),
        place("aten::linalg_qr.out", "fallback", "net.py:5"),
        place("aten::sin", "native", "net.py:7"),
    )
    result = verify(prediction, observation, lists)
    assert [(agreement.op, agreement.predicted, agreement.observed) for agreement in result.agreements] == [
        ("aten::add.Tensor", "native", "native"),
        ("aten::add.Tensor", "unsupported", "unsupported"),
        ("aten::linalg_qr.out", "fallback", "fallback"),
    ]
    assert result.contradictions == ()
    assert [item.op for item in result.unobserved] == ["aten::mm"]
    assert [item.op for item in result.unpredicted] == ["aten::sin"]


@pytest.mark.parametrize("line", ["net.py:3", "net.py:4"])
def test_a_functional_call_is_the_one_whose_out_form_the_mac_names(line: str, lists: OpLists) -> None:
    # Only where the line is the same, too.
    gcd = place("aten::gcd", "native")
    compared = verify(made_report(gcd), seen(place("aten::gcd.out", "fallback", line)), lists)
    assert len(compared.contradictions) == (line == "net.py:3")
    assert len(compared.unpredicted) == (line != "net.py:3")


def test_the_profilers_name_without_an_overload_is_every_overload(lists: OpLists) -> None:
    prediction = made_report(place("aten::isin.Tensor_Tensor", "native"))
    result = verify(prediction, seen(place("aten::isin", "fallback", "", dtypes=())), lists)
    assert [(contradiction.predicted, contradiction.observed) for contradiction in result.contradictions] == [
        ("native", "fallback")
    ]


def test_precision_and_recall_are_of_each_status(lists: OpLists) -> None:
    prediction = made_report(
        place("aten::sin", "native", "a.py:1"),
        place("aten::cos", "native", "a.py:2"),
        place("aten::tan", "fallback", "a.py:3"),
        place("aten::exp", "unknown", "a.py:4"),
    )
    observation = seen(
        place("aten::sin", "native", "a.py:1"),
        place("aten::cos", "unsupported", "a.py:2"),
        place("aten::tan", "fallback", "a.py:3"),
        place("aten::exp", "unsupported", "a.py:4"),
    )
    result = verify(prediction, observation, lists)
    assert [
        (rate.status, rate.both, rate.predicted, rate.observed, rate.precision, rate.recall) for rate in result.rates
    ] == [("native", 1, 2, 1, 0.5, 1.0), ("fallback", 1, 1, 1, 1.0, 1.0), ("unsupported", 0, 0, 1, None, 0.0)]
    assert [contradiction.op for contradiction in result.contradictions] == ["aten::cos"]


def test_what_names_no_operator_is_matched_by_its_statement(lists: OpLists) -> None:
    stated = ("grid-sampler-2d-border",)
    prediction = made_report(place("aten::grid_sampler_2d", "unsupported", limitations=stated))
    observation = seen(place("(operator not named)", "unsupported", "", limitations=stated, dtypes=()))
    (pair,) = verify(prediction, observation, lists).pairs
    assert pair.agrees
    assert pair.op == "aten::grid_sampler_2d"


def test_nothing_observed_is_an_error(lists: OpLists) -> None:
    with pytest.raises(UsageError, match="nothing in the second report was observed"):
        verify(made_report(), made_report(place("aten::sin", "native")), lists)


def test_differing_targets_are_said(lists: OpLists) -> None:
    other = msgspec.structs.replace(TARGET, torch="2.12")
    notes = verify(made_report(), seen(place("aten::sin", "native"), target=other), lists).notes
    assert any("differ in torch" in note for note in notes)


def test_a_contradiction_becomes_a_statement_that_the_lists_read(lists: OpLists, tmp_path: Path) -> None:
    text = "RuntimeError: sin is broken on MPS"
    result = verify(
        made_report(place("aten::sin", "native"), place("aten::tan", "unsupported", "b.py:1")),
        seen(place("aten::sin", "unsupported", prints=text, count=3), place("aten::tan", "native", "b.py:1")),
        lists,
    )
    written = draft_statements(result, lists)
    (entry,) = yaml.safe_load(written)["limitations"]
    assert entry["id"] == "seen-sin-raises"
    assert entry["torch"] == {"since": "2.13", "until": "2.14"}
    assert entry["error"] == {"type": "RuntimeError", "text": "sin is broken on MPS"}
    assert entry["evidence"][0]["where"] == "Apple M2, macOS 15.0 (24D81), torch 2.13"
    assert "# aten::tan at b.py:1: predicted unsupported, it ran on mps" in written
    (tmp_path / "limitations").mkdir()
    (tmp_path / "limitations" / "observed.yaml").write_text(written, encoding="utf-8")
    statements, problems = read_written(tmp_path)
    assert problems == []
    assert not statements[0].statement.decides or statements[0].statement.when
    with pytest.raises(UsageError, match="nothing to propose"):
        draft_statements(verify(made_report(), seen(place("aten::sin", "native")), lists), lists)


def test_a_report_and_its_file_tell_the_same(tmp_path: Path) -> None:
    made = report(make_trace(call("aten::mm", 3), call("aten::foo", 4)), make_target(), make_lists())
    file = tmp_path / "report.json"
    file.write_text(render(made, "json"), encoding="utf-8")
    assert calls_of(read(str(file))) == calls_of(made)


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "mac.log"
    log.write_text(
        "PyTorch version: 2.13.0\nnet.py:3: UserWarning: The operator 'aten::mm' is not currently supported on the "
        "MPS backend and will fall back to run on the CPU.\n",
        encoding="utf-8",
    )
    observed = tmp_path / "observed.json"
    assert cli.invoke(["observe", str(log), "-o", str(observed)]) == 0
    content = json.loads(observed.read_text())
    content["calls"][0].update(status="native", kind=None, confidence="registration")
    predicted = tmp_path / "predicted.json"
    predicted.write_text(json.dumps(content), encoding="utf-8")
    proposal = tmp_path / "proposal.yaml"
    assert cli.invoke(["verify", str(predicted), str(observed), "--propose", str(proposal)]) == 1
    shown = capsys.readouterr().out
    assert "1 contradiction" in shown
    assert "aten::mm at net.py:3: predicted native, observed fallback" in shown
    assert "falls_back" in proposal.read_text()
    assert cli.invoke(["verify", str(observed), str(observed), "-f", "json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["rates"][0]["precision"] == 1.0
    schema = Draft202012Validator(json_schema(Verification))
    assert [error.message for error in schema.iter_errors(written)] == []
    assert list(schema.iter_errors({**written, "more": 1}))
    assert list(schema.iter_errors({**written, "pairs": [{}]}))
    assert cli.invoke(["verify", str(log), str(observed)]) == 2
    assert cli.invoke(["verify", str(predicted), str(predicted)]) == 2
