"""The corpus: texts that Macs printed, from public reports, each with what it says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists, load
from opcheck.device.observe.log_parsing import KINDS, LogEvent, parse, table

CORPUS = Path(__file__).parent / "corpus"


def entries() -> list[tuple[str, dict[str, Any]]]:
    results = []
    for path in sorted(CORPUS.glob("*.yaml")):
        for index, entry in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))["entries"]):
            results.append((f"{path.stem}-{index}", entry))
    return results


ENTRIES = entries()


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_a_printed_text_is_read_whole(name: str, entry: dict[str, Any], lists: OpLists) -> None:
    seen = parse(entry["printed"], lists, log=name)
    assert [element.kind for element in seen] == [wanted["kind"] for wanted in entry["expect"]]
    for item, wanted in zip(seen, entry["expect"], strict=True):
        check(item, wanted)
        line = entry["torch"] and Version.parse(entry["torch"])
        if line and not wanted.get("outside"):
            assert line in item.torch, f"{line} does not print {item.text}"


def check(seen: LogEvent, wanted: dict[str, Any]) -> None:
    assert seen.kind in KINDS
    if "op" in wanted:
        assert seen.op == wanted["op"]
    if "at" in wanted:
        assert str(seen.location) == wanted["at"]
    if "statement" in wanted:
        assert any(name.startswith(wanted["statement"]) for name in seen.statements)
    for end in ("since", "until"):
        if end in wanted:
            assert str(getattr(seen.torch, end)) == wanted[end]
    assert {k: seen.numbers.get(k) for k in wanted.get("numbers", {})} == wanted.get("numbers", {})
    assert {k: seen.words.get(k) for k in wanted.get("words", {})} == wanted.get("words", {})


def test_the_corpus_is_wide() -> None:
    assert len(ENTRIES) >= 60
    sources = [entry["source"] for _, entry in ENTRIES]
    assert all(source.startswith("https://github.com/") for source in sources)
    releases = {Version.parse(e["torch"]) for _, e in ENTRIES if e["torch"]}
    assert min(releases) == Version(1, 12)
    assert max(releases) == Version(2, 14)
    assert len(releases) >= 12


#: Pieces of real texts, so that the fuzzer reaches past a pattern's first word.
_PIECES = st.sampled_from(
    [row.needle for rows in table()[:3] for row in rows]
    + [
        "The operator 'aten::",
        "' is not currently ",
        "MPS:Float[2, 3]",
        " --> ",
        "(id=G1, run=",
        "CPU Fallback::aten::x",
        "CopyOverhead=",
        "24 bytes",
        "1.00 GiB",
        "\x1e12<\x1e",
        "\x1e12>\x1e",
        "\x1b[31m",
        'File "a.py", line 3, in f',
        "Traceback (most recent call last)",
        "2024-01-01T00:00:00.0Z ",
        "\n",
        "PyTorchMPS:Intervals] PyTorchCopyIntervals ",
        "----> 3 ",
    ]
)
_FUZZ = st.lists(st.one_of(_PIECES, st.text(max_size=30)), max_size=25).map("".join)


@given(_FUZZ)
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_parsers(text: str) -> None:
    for item in parse(text, load(), log="fuzz"):
        assert item.kind in KINDS
        assert item.line >= 1


@pytest.mark.parametrize("piece", [
    "The operator 'aten::a' is not currently ",
    "(",
    "(buf#1:2)",
    "MPS:Float[2, 3]:",
    "CPU Fallback::aten::x:MPS:Float[1]",
    "error: 'mps.a' op ",
    'loc("mps_add"(',
    "aten::x:y (id=G1",
    "BlitCopy: a --> ",
    'File "',
    " 1 ",
    "MPS backend out of memory (MPS allocated: 1 GB, ",
    "[",
    'INTERNAL ASSERT FAILED at "/',
    "Output channels > 65536 not supported at ",
])  # fmt: skip
def test_the_time_for_a_line_grows_with_its_length_alone(piece: str, lists: OpLists) -> None:
    short, long = piece * (20_000 // len(piece)), piece * (80_000 // len(piece))
    parse(short, lists)

    def seconds(line: str) -> float:
        start = time.process_time()
        parse(line, lists)
        return time.process_time() - start

    # Four times the length: four times as long, sixteen times where each piece is read for each.
    assert min(seconds(long) for _ in range(3)) < 9 * min(seconds(short) for _ in range(3)) + 0.1
