"""What the pages of a small site say, to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree.ElementTree import Element

import jsonschema
import pytest

from opcheck.data.registrations import OpLists
from opcheck.features.site import page_records, render
from opcheck.features.site.page_records import ModelPage, OperatorPage, ReleasePage, SitePage
from opcheck.features.site.pages import operators, pages
from opcheck.features.site.sweep import Sweep
from opcheck.lookup.plain_call import OperatorLookup
from tests.features.site import checks, made
from tests.features.site.made import ABOUT, HOSTILE, tables


@pytest.fixture(scope="module")
def parsed(small: Path) -> dict[str, Element]:
    return checks.everything(small)


def text(page: Element) -> str:
    return " ".join("".join(page.itertext()).split())


def operator(result: tuple[SitePage, ...], name: str) -> OperatorPage:
    return next(page for page in result if isinstance(page, OperatorPage) and page.name == name)


def test_every_link_leads_somewhere(small: Path, parsed: dict[str, Element]) -> None:
    assert list(checks.broken(small, parsed)) == []


def test_a_link_to_nowhere_is_found(small: Path, parsed: dict[str, Element]) -> None:
    fewer = {name: page for name, page in parsed.items() if name == "index.html"}
    fewer["index.html"].find(".//main//a").set("href", "nowhere.html")  # type: ignore[union-attr]
    assert list(checks.broken(small, fewer)) == ["index.html: nowhere.html"]


def test_every_page_is_valid_and_has_its_landmarks(parsed: dict[str, Element]) -> None:
    assert len(parsed) > 80
    wrong = [item for name, page in parsed.items() for item in checks.wrong_structure(name, page)]
    assert wrong == []


def test_the_same_lists_give_the_same_bytes(small_pages: tuple[SitePage, ...]) -> None:
    again = pages(OperatorLookup(made.lists()), Sweep(tables(), ABOUT))
    assert render.files(again) == render.files(small_pages)


def test_nothing_is_loaded_from_elsewhere_and_no_folder_named(small: Path) -> None:
    for path in small.rglob("*"):
        if path.is_file():
            content = path.read_text(encoding="utf-8")
            assert str(Path.home()) not in content
            assert str(Path(__file__).parents[3]) not in content
            assert 'src="http' not in content
            assert "@import" not in content


def test_unknown_is_said_in_words_and_never_native(
    small: Path, parsed: dict[str, Element], small_pages: tuple[SitePage, ...]
) -> None:
    composite = operator(small_pages, "aten::implied")
    assert composite.state == "unknown"
    main = parsed["op/aten/implied.html"].find(".//main")
    assert main is not None
    result = text(main)
    assert "unknown" in result
    assert "unknown does not count as native" in result
    html = (small / "op/aten/implied.html").read_text(encoding="utf-8")
    assert "s-native" not in html
    lost = (small / "model/timm/lost.html").read_text(encoding="utf-8")
    assert "could not tell" in lost
    assert "s-native" not in lost


def test_releases_without_the_overload_have_no_row(small_pages: tuple[SitePage, ...]) -> None:
    comes = operator(small_pages, "aten::comes")
    assert [row.torch for row in comes.tables[0]] == [("2.14", "2.14")]
    back = operator(small_pages, "aten::goes")
    # One span for each time that it is there: neighbours do not close the gap between.
    assert [(row.torch, row.state) for row in back.tables[0]] == [
        (("2.12", "2.12"), "native"),
        (("2.14", "2.14"), "fallback_env"),
    ]


def test_neighbours_that_say_the_same_are_one_span(small_pages: tuple[SitePage, ...]) -> None:
    mm = operator(small_pages, "aten::mm")
    assert [(row.torch, row.state, row.dtypes) for row in mm.tables[0]] == [
        (("2.12", "2.14"), "native", {"float64": "unsupported", "int64": "unsupported", "bool": "unsupported"})
    ]
    # mm.out has no statement of its own.
    assert [overload.table for overload in mm.overloads] == [0, 1]


def test_limits_advisories_and_models_stand_on_the_operators_page(parsed: dict[str, Element]) -> None:
    result = text(parsed["op/aten/mm.html"])
    assert "mm-int" in result
    assert "Cast to float32." in result
    assert "mm-wrong" in result
    assert "self.shape[0] > 32 and self.dim < 3" in result
    assert "pytorch/pytorch#1" in result
    assert "2 models call it (inference)" in result
    stopped = text(parsed["op/aten/stub.html"])
    assert "timm:two" in stopped
    assert "torch 2.13 to 2.14 on macOS 15.0" in stopped


def test_a_release_says_what_it_brought_and_broke(small_pages: tuple[SitePage, ...]) -> None:
    newest = next(p for p in small_pages if isinstance(p, ReleasePage) and p.torch == "2.14")
    changes = {differ.name: (differ.change, differ.before, differ.after) for differ in newest.differs}
    assert changes == {
        "aten::worse": ("regressed", "native", "fallback_env"),
        "aten::better": ("improved", "fallback_env", "native"),
        "aten::comes": ("added", None, "native"),
        "aten::goes": ("added", None, "fallback_env"),
    }
    assert newest.models == {"could not tell": 1, "fails": 1, "runs natively": 2}
    assert newest.stops == (("aten::stub", 1),)
    assert "PYTORCH_ENABLE_MPS_FALLBACK" in {item.name for item in newest.environment}


def test_a_model_has_its_grid(parsed: dict[str, Element], small_pages: tuple[SitePage, ...]) -> None:
    first = next(p for p in small_pages if isinstance(p, ModelPage) and p.name == "timm:one")
    assert [(o.headline, dict(o.targets)) for o in first.outcomes] == [
        ("runs only with PYTORCH_ENABLE_MPS_FALLBACK=1", {"2.13": ("15.0",)}),
        ("runs natively", {"2.14": ("15.0",)}),
    ]
    rows = [text(row) for row in parsed["model/timm/one.html"].iter("tr")]
    assert rows[1:3] == [
        "2.14runs natively",
        "2.13runs only with PYTORCH_ENABLE_MPS_FALLBACK=13 of 10 calls: CPU fallback, with the variable",
    ]


def test_a_name_that_is_code_stays_text(small: Path, parsed: dict[str, Element]) -> None:
    path = page_records.model(HOSTILE)
    assert path.startswith("model/user.py/Net")
    assert HOSTILE.replace("\x1b", "\\x1b") in text(parsed[f"{path}.html"])
    assert "<script>alert" not in (small / f"{path}.html").read_text(encoding="utf-8")
    assert "\x1b" not in (small / f"{path}.html").read_text(encoding="utf-8")


def test_models_with_near_names_have_pages_of_their_own() -> None:
    names = ("a.py:Net", "a.py:Net<", "a.py:Net>", "../a.py:Net", ".:x", "a b", "a-b", "timm:x/../y")
    results = {page_records.model(name) for name in names}
    assert len(results) == len(names)
    assert not any(".." in path or path.startswith("/") for path in results)


def test_the_json_beside_each_page_keeps_to_its_schema(small: Path) -> None:
    schema = json.loads((small / "schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    beside = [path.with_suffix(".json") for path in small.rglob("*.html")]
    for path in beside:
        content = json.loads(path.read_text(encoding="utf-8"))
        assert content["schema"].startswith("opcheck-site")
        validator.validate(content)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({"schema": "opcheck-site-operator/1", "name": 3})


def test_operators_of_the_real_lists(lookup: OperatorLookup, lists: OpLists) -> None:
    result, nms = operators(lookup, {"aten::grid_sampler_2d", "torchvision::nms"})
    # As `opcheck op aten::grid_sampler_2d` has it.
    assert [(row.torch, row.macos.until, row.state) for row in result.tables[0][:2]] == [
        (("1.13", "1.13"), None, "fallback_env"),
        (("2.0", "2.0"), "13.1", "fallback_internal"),
    ]
    assert result.tables[0][-1].torch[1] == lists.releases[-1].line
    assert result.first_native == "2.0"
    assert {limitation.note.id for limitation in result.limitations} >= {"grid-sampler-2d-border"}
    assert nms.overloads[0].registration == "kernel"
    assert nms.tables[0][0].torch[0] == "2.0"


def test_a_dtype_whose_results_are_wrong_is_marked_in_its_cell(lists: OpLists) -> None:
    (page,) = operators(OperatorLookup(lists), {"aten::acos"})
    newest = page.tables[page.overloads[0].table][-1]
    assert (newest.state, newest.dtypes["complex64"]) == ("native", "native_wrong")
    assert render.dtypes(newest.dtypes) == "refused: float64; wrong for some inputs: complex64"


def test_each_entry_of_a_list_has_what_its_filters_compare(parsed: dict[str, Element]) -> None:
    for name, keys in (
        ("operators.html", {"status", "since", "differs"}),
        ("advisories.html", {"effect", "torch", "dtype"}),
        ("limitations.html", {"effect", "torch", "dtype"}),
    ):
        page = parsed[name]
        (fields,) = filter(None, (each.get("data-filters") for each in page.iter()))
        entries = [each for each in page.iter() if each.get("data-item") is not None]
        assert set(fields.split()) == keys
        assert entries
        for entry in entries:
            assert keys <= {key.removeprefix("data-") for key in entry.attrib}
