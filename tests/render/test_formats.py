from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml
from rich.cells import cell_len

from opcheck.model.records import (
    GroupLocation,
    Lifetime,
    Precision,
    PrecisionEvent,
    PrecisionLine,
    PrecisionModule,
    Problem,
    Report,
    SourceLocation,
)
from opcheck.model.saved import as_content
from opcheck.render import FORMATS, format_of, render, summary
from opcheck.render import report as report_page
from opcheck.render.text import as_text
from tests.made import call, make_report, make_statement, problem, spec

GOLDEN = Path(__file__).parent / "golden"

#: One report that is all well, one that has every finding, one with nothing to tell.
LOST = PrecisionLine(
    op="aten::sub.Tensor",
    place=GroupLocation.at(SourceLocation(file="model.py", line=9, text="var = a | b"), module="norm", count=1),
    first=7,
    local=0.099,
    inherited=1e-7,
    total=0.29,
)

REPORTS: dict[str, Report] = {
    "native": make_report(call("aten::mm", 3), call("aten::mm", 3), call("aten::relu", 4)),
    "everything": make_report(
        call("aten::mm", 1),
        *(call("aten::foo", line) for line in (2, 3, 4, 5, 5, 6)),
        call("aten::svd", 7, location=None, module=""),
        call("aten::embedding_renorm_", 8, phase="backward"),
        call("mylib::op|with", 9, registrations=("CPU",)),
        call("aten::stub", 10),
        call("aten::implied", 11),
        call("aten::add_.Tensor", 14),
        call("aten::view", 15),
        call("aten::comp", 12, inner=("aten::foo", "aten::mm")),
        call(
            "aten::_to_copy",
            13,
            inputs=(spec(1, dtype="float64"),),
            refusal=("dtype-mm", "Cannot convert a MPS Tensor to float64 dtype. Use `float32`."),
            location=SourceLocation(
                file="a/very/long/path/" * 8 + "model.py", line=13, text="x = x | y  # 日本語のコメント" * 6
            ),
        ),
        problems=(
            Problem(
                kind="guess",
                message="aten::nonzero was answered as if every element were selected",
                op="aten::nonzero",
                answered="as if every element were selected",
                count=2,
            ),
        ),
        uncalled=("head",),
        inputs=("x=4x3:float32",),
        mac=8,
        precision=(
            Precision(
                dtype="float32",
                limit=1e-5,
                calls=9,
                divergence=LOST,
                crossing=LOST,
                lines=(LOST,),
                modules=(
                    PrecisionModule(
                        name="norm",
                        kind="Norm",
                        calls=1,
                        inherited=1e-7,
                        total=0.29,
                        bytes_in=2048,
                        bytes_out=96,
                        at_fault=1,
                    ),
                ),
                events=(PrecisionEvent(kind="flips", op="aten::argmax", place=LOST.place, elements=1, of=8, first=8),),
                outputs={"[0]": 0.29},
                gradients={"norm.weight": 0.4, "norm.bias": 0.0},
                loss="the mean square of the floating outputs",
                notes=("computed by this machine's CPU",),
            ),
        ),
        lifetimes=(
            Lifetime(storage=1, nbytes=24, first=0, freed=None, kind="parameter", name="net.weight"),
            Lifetime(storage=2, nbytes=6, first=0, freed=None, kind="input", name="args[0]"),
            Lifetime(storage=3, nbytes=9 << 30, first=2, freed=4, kind="result"),
            Lifetime(storage=4, nbytes=3 << 30, first=3, freed=None, kind="result"),
            Lifetime(storage=5, nbytes=1 << 30, first=8, freed=None, kind="result"),
        ),
        differences=("aten::new is not in the installed torch",),
        statements=(
            make_statement("add-shape", ops=("aten::add_.Tensor",), way_out="Reshape it."),
            make_statement("view-narrows", ops=("aten::view",), effect="narrows"),
            make_statement(
                "view-values",
                ops=("aten::view",),
                sort="advisory",
                effect="wrong_result",
                when="values repeat",
                links=("https://example.org/1",),
            ),
        ),
    ),
    "broken": make_report(
        complete=False, problems=(problem("model_raised", "the model raised ValueError: no"),), parameters=0
    ),
}
_TEMPLATE = re.compile(r"(?<=<style>).*?(?=</style>)|(?<=<script>).*?(?=</script>)|sha256-[^']*", re.DOTALL)
CASES = [(name, kind) for name in REPORTS for kind in FORMATS]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_golden(name: str, kind: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}{(*FORMATS[kind], f'.{kind}')[0]}"
    # The page's style and script are no part of what it says.
    text = _TEMPLATE.sub("", render(REPORTS[name], kind)) if kind == "html" else render(REPORTS[name], kind)
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REPORTS)
def test_yaml_and_json_say_the_same(name: str) -> None:
    report = REPORTS[name]
    from_yaml = yaml.safe_load(render(report, "yaml"))
    assert from_yaml == json.loads(render(report, "json")) == as_content(report)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_same_report_gives_the_same_bytes(name: str, kind: str) -> None:
    assert render(REPORTS[name], kind) == render(REPORTS[name], kind)


def test_yaml_writes_nothing_as_a_reference_to_something_else() -> None:
    text = render(REPORTS["everything"], "yaml")
    assert "&id" not in text
    assert "*id" not in text


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [60, 100, 300])
@pytest.mark.parametrize("full", [False, True])
def test_the_text_is_never_wider_than_the_terminal(name: str, width: int, *, full: bool) -> None:
    text = as_text(report_page.document(REPORTS[name]), width=width, full=full)
    assert max(map(cell_len, text.splitlines())) <= min(width, 100)


@pytest.mark.parametrize("name", REPORTS)
def test_colour_adds_escapes_and_nothing_else(name: str) -> None:
    assert "\x1b" not in as_text(report_page.document(REPORTS[name]))
    assert "\x1b[" in as_text(report_page.document(REPORTS[name]), color=True)


def test_the_headline_is_the_first_line() -> None:
    for report in REPORTS.values():
        first = as_text(report_page.document(report)).splitlines()[0]
        assert first.startswith(f"{summary.answer(report)}: model.py:Net on torch 2.13, macOS 15.0; ")


def test_the_text_shows_three_places_unless_asked_for_all() -> None:
    report = make_report(*(call("aten::foo", line) for line in range(1, 7)))
    short, whole = (as_text(report_page.document(report)), as_text(report_page.document(report), full=True))
    assert "model.py:4" not in short
    assert "and 3 more places (-v shows all)" in short
    assert "model.py:6" in whole
    assert "more place" not in whole


def test_the_next_command_of_a_native_model_keeps_it_so() -> None:
    expected = "opcheck audit model.py:Net --torch 2.13 --macos 15.0 --fail-on fallback"
    assert expected in render(REPORTS["native"], "text")
    assert "opcheck explain OC101" in render(REPORTS["everything"], "text")


@pytest.mark.parametrize("name", REPORTS)
def test_no_markdown_cell_breaks_its_table(name: str) -> None:
    lines = render(REPORTS[name], "markdown").splitlines()
    for is_table, rows in itertools.groupby(lines, lambda line: line[:1] == "|"):
        assert not is_table or len({row.replace("\\|", "").count("|") for row in rows}) == 1


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("x.yml", "yaml"),
        ("a/b.YAML", "yaml"),
        ("r.md", "markdown"),
        ("r.json", "json"),
        ("r.SARIF", "sarif"),
        ("r.sarif.json", "sarif"),
        ("gl.gitlab.json", "gitlab"),
        ("junit.xml", "junit"),
        ("r.github", None),
        ("r", None),
    ],
)
def test_a_suffix_asks_for_a_format(path: str, kind: str | None) -> None:
    assert format_of(path) == kind
