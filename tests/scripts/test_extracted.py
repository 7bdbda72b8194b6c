"""What is extracted from the wheels: from made libraries, and as it is committed."""

from __future__ import annotations

import runpy
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

import numpy as np

from opcheck.common.errors import OpListError
from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import StatementEvidenceKind
from opcheck.data import lint
from opcheck.data.files import read_releases
from opcheck.data.history import contract, dump, expand
from opcheck.data.lint import TEXTS, fragments
from opcheck.data.registrations import data_directory
from opcheck.data.statement_model import ErrorText, Statement, StatementEvidence
from opcheck.data.statements import load_statements
from opcheck.data.wheels.image import Image, Section
from opcheck.data.wheels.metallib import functions
from scripts.wheels import checks, extracted, metal
from scripts.wheels.extracted import EMPTY, EXCEPTIONS, dump_texts, present, read_metal, stands, unfounded, with_release

SCRIPT = Path(__file__).parents[2] / "scripts" / "extract_limits.py"


def metallib(*names: str) -> bytes:
    def tag(word: bytes, value: bytes) -> bytes:
        return word + struct.pack("<H", len(value)) + value

    entries = b""
    for name in names:
        # TYPE comes after NAME in the wheels; here before it, so that the tags have to be walked.
        body = tag(b"TYPE", b"\x02") + tag(b"NAME", name.encode() + b"\0") + b"ENDT"
        entries += struct.pack("<I", len(body) + 4) + body
    return b"MTLB".ljust(0x18, b"\0") + struct.pack("<QI", 0x20, len(names)) + entries


def test_the_kernels_of_a_metallib_are_read_in_order() -> None:
    names = ("add_dense_float_half", "naive_matmul_bfloat")
    assert tuple(each.name for each in functions(metallib(*names))) == names
    assert functions(metallib()) == ()


@pytest.mark.parametrize("data", [b"", b"BCLM" * 20, metallib("a_float")[:-4], b"MTLB" + b"\xff" * 40])
def test_what_is_no_metallib_is_refused(data: bytes) -> None:
    with pytest.raises(OpListError):
        functions(data)


@pytest.mark.parametrize(
    ("name", "family", "dtypes"),
    [
        ("add_dense_cast_float_half", "add_*_*", ("float32", "float16")),
        ("exp2_strided_bfloat_int", "exp2_*_*", ("bfloat16", "int32")),
        ("mul_dense_scalar_lhs_float2_float2", "mul_*_*", ("complex64", "complex64")),
        ("attention_bfloat16_bq16_bk8_bd256", "attention_*_#", ("bfloat16",)),
        ("index_select_8bit_idx32", "index_select_8bit_#", ()),
    ],
)
def test_a_family_is_the_name_without_its_dtypes(name: str, family: str, dtypes: tuple[str, ...]) -> None:
    assert metal.family(name) == (family, dtypes)


def test_the_dtypes_of_a_family_are_kept_by_place() -> None:
    names = ("add_dense_float_half", "add_strided_half_half", "add_dense_bool_bool", "plain")
    assert metal.families(names) == {"add_*_*": "bool float16 float32 | bool float16"}


TEXT, STRINGS = 0x0, 0x5000
PATH = "/Users/made/pytorch/aten/src/ATen/native/mps/operations/Made.mm"
HEADER = "/Users/made/pytorch/c10/core/TensorImpl.h"
MESSAGES = {
    "path": PATH,
    "header": HEADER,
    "check": "made(): MPS refuses this input",
    "inlined": "a tensor without storage cannot do that",
    "elsewhere": "words that are printed elsewhere",
    "gate": "Only on macOS 15 or newer",
    "fragment": "Odd piece ",
}


def addresses() -> dict[str, int]:
    at, result = STRINGS, {}
    for key, text in MESSAGES.items():
        result[key] = at
        at += len(text) + 1
    return result


def adrp_add(register: int, target: int, pc: int) -> list[int]:
    pages = (target >> 12) - (pc >> 12)
    adrp = 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | register
    return [adrp, 0x91000000 | (target & 0xFFF) << 10 | register << 5 | register]


def made_image() -> Image:
    at = addresses()
    words: list[int] = []

    def refer(register: int, key: str) -> None:
        words.extend(adrp_add(register, at[key], TEXT + 4 * len(words)))

    refer(3, "check")
    words.append(0x52800002 | 77 << 5)  # mov w2, #77
    refer(1, "path")
    words += [0xD503201F] * 30  # nop
    refer(3, "inlined")
    refer(1, "header")
    second = 4 * len(words)
    refer(3, "elsewhere")
    refer(1, "header")
    code = struct.pack(f"<{len(words)}I", *words)
    strings = b"\0".join(text.encode() for text in MESSAGES.values()) + b"\0"
    data = code.ljust(STRINGS, b"\0") + strings + metallib("add_dense_float", "add_dense_half")
    library = STRINGS + len(strings)
    sections = (
        Section("__TEXT", "__text", TEXT, len(code), TEXT),
        Section("__TEXT", "__cstring", STRINGS, len(strings), STRINGS),
        Section("__TEXT", "metal_basic", library, len(data) - library, library),
    )
    symbols: dict[int, tuple[str, ...]] = {
        TEXT: ("__ZN2at6native8made_mpsERKNS_6TensorE",),
        second: ("__ZN3c105otherEv",),
    }
    return Image(data, sections, symbols)


def test_the_texts_are_those_of_functions_that_name_an_mps_source() -> None:
    file = "aten/src/ATen/native/mps/operations/Made.mm"
    assert checks.texts(made_image()) == (
        checks.Text(MESSAGES["gate"], None, None, None),
        checks.Text(MESSAGES["check"], file, "at::native::made_mps", 77),
    )


def test_a_claimed_piece_is_looked_for_in_every_string() -> None:
    results = {text.text for text in checks.texts(made_image(), ("Odd piece ", "not there"))}
    assert results == {MESSAGES["gate"], MESSAGES["check"], MESSAGES["fragment"]}


def test_the_metal_sections_of_a_library_are_read() -> None:
    assert metal.metal_families(made_image()) == {"add_*": "float16 float32"}


@pytest.mark.parametrize("pc", [0x0, 0x1FFC, 0x7008])
@pytest.mark.parametrize("target", [0x5123, 0x5FFF])
def test_an_address_is_put_together_of_page_and_offset(pc: int, target: int) -> None:
    words = np.array([0xD503201F, *adrp_add(9, target, pc + 4)], dtype=np.uint32)
    result = checks.references(words, pc, 0x5000, 0x6000)
    assert (result.at.tolist(), result.target.tolist()) == ([pc + 8], [target])
    assert checks.references(words, pc, 0x6000, 0x7000).at.size == 0


@pytest.mark.parametrize(
    "text",
    [
        PATH,
        "short",
        "onewordandnothingmore",
        "kernel void made(device float* out) { }",
        "virtual void at::native::made(const Tensor &) ",
        "x INTERNAL ASSERT FAILED at somewhere",
    ],
)
def test_what_is_no_message(text: str) -> None:
    assert not checks.is_message(text)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__ZN2at6native3absERKNS_6TensorE", "at::native::abs"),
        ("__ZN2at6nativeL5innerEv", "at::native::inner"),
        ("__ZN2at12_GLOBAL__N_14madeEv.cold.1", "at::made"),
        ("_plain", "plain"),
    ],
)
def test_the_name_in_a_symbol(symbol: str, name: str) -> None:
    assert checks.plain(symbol) == name


def test_the_order_in_which_releases_are_read_does_not_matter() -> None:
    columns = {
        "2.9": [checks.Text("one", "a.mm", "f", 1), checks.Text("two", "a.mm", "g", 2)],
        "2.10": [checks.Text("one", "b.mm", "f", 3)],
        "2.11": [checks.Text("one", "b.mm", "f", 4), checks.Text("two", "c.mm", "g", 5)],
    }
    expected = {
        "one": (("b.mm", "f", 4, (("2.9", None),)),),
        "two": (("c.mm", "g", 5, (("2.9", "2.10"), ("2.11", None))),),
    }
    for order in (["2.9", "2.10", "2.11"], ["2.11", "2.9", "2.10"], ["2.10", "2.11", "2.9", "2.10"]):
        result = EMPTY
        for line in order:
            result = with_release(result, line, columns[line], {"g": {"aten::y", "aten::x"}})
        assert result.texts == expected
        assert result.operators == {"g": (("2.9", "aten::x aten::y"),)}
        assert result.releases == ("2.9", "2.10", "2.11")
        assert present(result, "2.10") == ("one",)


def test_a_text_has_each_function_that_a_kernel_leads_to() -> None:
    places = [checks.Text("one", "a.mm", name, 1) for name in ("f", "g", "unused")]
    result = with_release(EMPTY, "2.9", places, {"f": {"aten::x"}, "g": {"aten::y"}})
    assert [place[1] for place in result.texts["one"]] == ["f", "g"]
    assert [place[1] for place in with_release(EMPTY, "2.9", places, {}).texts["one"]] == ["f"]


def test_many_operators_of_a_function_are_not_named() -> None:
    users = {"f": {f"aten::x{number}" for number in range(100)}}
    result = with_release(EMPTY, "2.9", [checks.Text("one", "a.mm", "f", 1)], users)
    assert result.operators == {"f": (("2.9", lint.SHARED),)}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("rank {rank} exceeds Metal max of 16", (" exceeds Metal max of 16",)),
        ("MPS refuses {op} of {dtype} tensors", ("MPS refuses ", " tensors")),
        ("{op}: no ({n})", (": no (",)),
        ("{a} in {b}", (" in ",)),
    ],
)
def test_a_text_falls_into_the_pieces_between_its_values(text: str, pieces: tuple[str, ...]) -> None:
    assert fragments(text) == pieces


def test_every_piece_has_to_stand() -> None:
    present = ("MPS refuses rank ", " in this release")
    assert stands("MPS refuses rank {n} in this release", present)
    assert not stands("MPS refuses rank {n} in that release", present)


def test_a_message_may_be_put_together_of_parts() -> None:
    present = ("MPS: ", " op is supported from macOS 13.0. ", "Falling back on CPU.")
    assert stands("MPS: sort op is supported from macOS 13.0. Falling back on CPU.", present)
    # What stands between the parts is a value: one word, no part of a message that is not there.
    assert not stands("MPS: sort op is supported from macOS 13.0. Slow. Falling back on CPU.", present)
    assert not stands("MPS: sort op is supported from macOS 13.2. Falling back on CPU.", present)
    assert not stands("an unrelated message", present)


def made_statement(kind: StatementEvidenceKind, text: str) -> Statement:
    return Statement(
        id=f"made-{kind}",
        sort="limitation",
        ops=("aten::made",),
        effect="raises",
        torch=Span(since=Version(2, 9)),
        error=ErrorText(type="RuntimeError", text=text),
        evidence=(StatementEvidence(kind=kind, where="somewhere"),),
    )


def test_a_claim_without_a_text_is_found() -> None:
    lists = with_release(EMPTY, "2.8", [], {})
    lists = with_release(lists, "2.9", [checks.Text("a made message", None, None, None)], {})
    lists = with_release(lists, "2.10", [checks.Text("another message", None, None, None)], {})
    statements = [made_statement(kind, "a made message") for kind in ("binary", "source", "issue")]
    assert [(item.id, lines) for item, lines in unfounded(statements, lists)] == [
        ("made-binary", ("2.10",)),
        ("made-source", ("2.10",)),
    ]


# What is committed.


def test_every_release_is_extracted() -> None:
    releases, _ = read_releases(data_directory() / "releases.yaml")
    assert TEXTS.load().releases == tuple(release.line for release in releases)


def test_the_committed_texts_are_canonical() -> None:
    result = TEXTS.load()
    raw = (data_directory() / "extracted" / "texts.json").read_text(encoding="utf-8")
    assert dump_texts(result) == raw
    assert all(place[3] for places in result.texts.values() for place in places)


def test_the_committed_metal_dtypes_are_canonical() -> None:
    releases, history = TEXTS.load().releases, read_metal(data_directory())
    raw = (data_directory() / "extracted" / "metal.json").read_text(encoding="utf-8")
    assert dump(history) == raw
    for name, entries in history.operators.items():
        values = expand(entries, releases)
        assert contract(values, releases) == entries
        for value in values.values():
            places = [place.split() for place in value.split(" | ")]
            assert len(places) == name.split("_").count(metal.ANY)
            assert metal.dumped(places) == value


def test_both_files_stay_small() -> None:
    assert sum(p.stat().st_size for p in (data_directory() / "extracted").iterdir()) < 500_000


def test_the_smallest_macos_is_among_the_texts() -> None:
    result = TEXTS.load()
    releases, _ = read_releases(data_directory() / "releases.yaml")
    for release in releases:
        outcome = release.minimum_macos_text
        assert any(outcome in text for text in present(result, release.line)), release.line


def test_every_statement_that_was_read_stands_in_the_wheels_of_its_span() -> None:
    wrong = unfounded(load_statements(data_directory()).all, TEXTS.load())
    assert [(item.id, lines) for item, lines in wrong] == []


def test_the_exceptions_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(EXCEPTIONS)
    monkeypatch.setattr(extracted, "EXCEPTIONS", {})
    wrong = {item.id for item, _ in unfounded(load_statements(data_directory()).all, TEXTS.load())}
    assert wrong == known.keys()


def test_the_check_fails_where_a_text_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["extract_limits.py", "--check"])
    main = runpy.run_path(str(SCRIPT))["main"]
    assert main() == 0
    result = TEXTS.load()
    name, claimed = next((o.id, t) for o, t in extracted.claims(load_statements(data_directory()).all) if "{" not in t)
    lacking = {text: row for text, row in result.texts.items() if claimed not in text}
    monkeypatch.setitem(
        main.__globals__, "TEXTS", SimpleNamespace(load=lambda _: lint.Extracted(1, result.releases, lacking, {}))
    )
    capsys.readouterr()
    assert main() == 1
    assert name in capsys.readouterr().out


def test_the_check_fails_where_nothing_was_extracted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["extract_limits.py", "--check"])
    main = runpy.run_path(str(SCRIPT))["main"]
    monkeypatch.setitem(main.__globals__, "TEXTS", SimpleNamespace(load=lambda _: EMPTY))
    assert main() == 1
    assert "torch 2.13: not extracted" in capsys.readouterr().out


@pytest.mark.wheel
def test_a_real_wheel_gives_what_is_committed() -> None:
    extract = runpy.run_path(str(SCRIPT))["extract"]
    pieces = {p for _, text in extracted.claims(load_statements(data_directory()).all) for p in fragments(text)}
    line, places, users, families = extract("2.13.0", tuple(sorted(pieces)))
    texts = TEXTS.load()
    assert (line, {place.text for place in places}) == ("2.13", set(present(texts, "2.13")))
    assert users["at::native::repeat_mps"] == {"aten::repeat"}
    committed = {
        name: values["2.13"]
        for name, entries in read_metal(data_directory()).operators.items()
        if "2.13" in (values := expand(entries, texts.releases))
    }
    assert families == committed
