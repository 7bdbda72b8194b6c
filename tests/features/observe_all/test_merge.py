"""Evidence of hosts: signed, with digests, merged once, and never lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import yaml

from opcheck.common.errors import InputError
from opcheck.data.registrations import load
from opcheck.device.observation_store import (
    FILE,
    KEY,
    Host,
    HostEvidence,
    HostRow,
    HostStep,
    merge,
    read_evidence,
    write_evidence,
    write_rows,
)
from opcheck.features.observe_all import page
from opcheck.render.markdown import as_markdown

LISTS = load()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "a secret of the repository")


def host(torch: str = "2.13.0", macos: str = "15.7", gpu: str = "virtual") -> Host:
    return msgspec.convert(
        {"torch": torch, "macos": macos, "chip": "Apple M1 (Virtual)", "image": "macos15 1", "gpu": gpu}, Host
    )


def row(op: str = "aten::mm", predicted: str = "native", observed: str = "native") -> HostRow:
    return HostRow(subject="net", op=op, predicted=predicted, observed=observed, dtypes=("float32",))


def evidence(folder: Path, *steps: list[HostRow], run: str = "a1", on: Host | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    written = [
        write_rows(folder, HostStep(kind="models", name=f"model {number}", state="done"), rows)
        for number, rows in enumerate(steps)
    ]
    write_evidence(
        folder,
        HostEvidence(run=run, made="2026-11-23", op_lists="x", host=on or host(), steps=tuple(written), complete=True),
    )
    return folder


def state(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    given = evidence(tmp_path / "e", [row(), row("aten::svd", "fallback", "native")])
    into = tmp_path / "observed"
    first = merge([given], into, LISTS)
    assert (first.added, first.unchanged) == (1, 0)
    before = state(into)
    again = merge([given, given], into, LISTS)
    assert (again.added, again.extended, again.unchanged) == (0, 0, 2)
    assert state(into) == before
    (agreement,) = again.summary.agreements
    assert (agreement.agreed, agreement.contradicted) == (1, 1)


def test_the_order_of_merges_does_not_matter(tmp_path: Path) -> None:
    first = evidence(tmp_path / "a", [row()], run="a1")
    second = evidence(tmp_path / "b", [row("aten::svd", "native", "wrong")], run="b1", on=host("2.14.0"))
    merge([first, second], tmp_path / "one", LISTS)
    merge([second], tmp_path / "two", LISTS)
    merge([first], tmp_path / "two", LISTS)
    assert state(tmp_path / "one") == state(tmp_path / "two")


def test_two_merges_at_once_lose_nothing(tmp_path: Path) -> None:
    given = [evidence(tmp_path / f"e{n}", [row(f"aten::op{n}")], run=f"r{n}") for n in range(8)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda folder: merge([folder], tmp_path / "into", LISTS), given))
    assert merge([given[0]], tmp_path / "into", LISTS).summary.runs == 8


def test_the_longer_of_two_parts_of_a_run_counts(tmp_path: Path) -> None:
    part = evidence(tmp_path / "part", [row()])
    whole = evidence(tmp_path / "whole", [row()], [row("aten::add")])
    into = tmp_path / "into"
    merge([part], into, LISTS)
    assert merge([whole], into, LISTS).extended == 1
    result = merge([part], into, LISTS)
    assert (result.unchanged, result.summary.runs) == (1, 1)
    assert result.summary.agreements[0].agreed == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("rows", "has another digest"),
        ("missing", "cannot be read"),
        ("host", "its signature is wrong"),
        ("key", "its signature is wrong"),
        ("half", "no evidence of a run"),
        ("none", "no evidence of a run"),
        ("torch", "which has no list"),
    ],
)
def test_evidence_that_is_not_as_it_was_signed_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, message: str
) -> None:
    good = evidence(tmp_path / "good", [row()], run="good")
    on = host("0.4.1") if damage == "torch" else host()
    bad = evidence(tmp_path / "bad", [row()], run="bad", on=on)
    about = bad / FILE
    rows = next(path for path in bad.iterdir() if path.name != FILE)
    if damage == "rows":
        rows.write_text(rows.read_text().replace('"native"', '"wrong"', 1))
    elif damage == "missing":
        rows.unlink()
    elif damage == "host":
        about.write_text(about.read_text().replace("virtual", "real"))
    elif damage == "half":
        about.write_text(about.read_text()[:100])
    elif damage == "none":
        about.unlink()
    elif damage == "key":
        monkeypatch.setenv(KEY, "another")
        good = evidence(tmp_path / "good", [row()], run="good")
    with pytest.raises(InputError, match=message):
        merge([good, bad], tmp_path / "into", LISTS)
    assert not (tmp_path / "into").exists()


def test_what_a_run_that_died_left_behind_counts(tmp_path: Path) -> None:
    folder = evidence(tmp_path / "e", [row()])
    part = msgspec.structs.replace(read_evidence(folder), complete=False)
    write_evidence(folder, part)
    # A file whose step was not described any more is left out.
    (folder / "models-0123456789ab.json").write_text("[")
    summary = merge([folder], tmp_path / "into", LISTS).summary
    assert (summary.runs, summary.partial) == (1, 1)
    assert summary.agreements[0].agreed == 1


def test_virtual_and_real_gpus_count_apart(tmp_path: Path) -> None:
    wrong = [row("aten::svd", "native", "wrong")]
    given = [
        evidence(tmp_path / f"{gpu}{n}", wrong, run=f"{gpu}{n}", on=host(gpu=gpu))
        for gpu, number in (("virtual", 2), ("real", 1))
        for n in range(number)
    ]
    summary = merge(given, tmp_path / "into", LISTS).summary
    (found,) = summary.contradictions
    assert (found.real, found.virtual) == (1, 2)
    assert [(each.gpu, each.contradicted) for each in summary.agreements] == [("real", 1), ("virtual", 2)]
    text = as_markdown(page.document(summary))
    assert "1 run on a real GPU, 2 runs on a virtual or emulated GPU" in text


def test_contradictions_become_proposed_statements(tmp_path: Path) -> None:
    rows = [
        row("aten::svd", "native", "wrong"),
        row("aten::sort", "native", "unsupported"),
        row("aten::mode", "fallback", "native"),
        row("aten::mm", "unknown", "native"),
    ]
    merge([evidence(tmp_path / "e", rows)], tmp_path / "into", LISTS)
    text = (tmp_path / "into" / "proposed.yaml").read_text()
    proposed = yaml.safe_load(text)
    assert [entry["ops"] for entry in proposed["limitations"]] == [["aten::sort"]]
    assert [entry["effect"] for entry in proposed["advisories"]] == ["wrong_result"]
    assert proposed["limitations"][0]["torch"] == {"since": "2.13", "until": "2.14"}
    assert "# aten::mode: predicted fallback, observed native on torch 2.13" in text
    observed = json.loads((tmp_path / "into" / "observed.json").read_text())
    assert len(observed["contradictions"]) == 3
