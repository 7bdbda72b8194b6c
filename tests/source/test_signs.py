"""Files that hold no word of a rule are not parsed, files are shared between processes, and the report stays the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from opcheck.source import engine, signs, source
from opcheck.source.scan_records import ScanReport
from opcheck.worker import shares
from tests.source.reading import TARGET, report
from tests.source.test_rules import LINES

SILENT = "def add(first, second):\n    return first + second\n"
#: A word that only the parser puts together, and one that Python reads as plain letters.
HIDDEN = (
    'import torch\nx = torch.zeros(2, device="cu" "da")\n',
    'import torch\nx = torch.zeros(2, device="\\x63uda")\n',
    "import torch\nx = torch.zeros(2).\N{MATHEMATICAL BOLD SMALL C}uda()\n",
)


def _write(folder: Path, texts: list[str]) -> list[str]:
    for number, text in enumerate(texts):
        (folder / f"m{number}.py").write_text(text, encoding="utf-8")
    return [str(folder)]


def _without_looking(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> ScanReport:
    with monkeypatch.context() as patches:
        patches.setattr(signs, "is_silent", lambda *_: False)
        return engine.scan(paths, TARGET)


def test_the_report_is_that_of_a_scan_that_parses_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [text for _, *pair in LINES for text in pair]
    texts = [SILENT, "x = (\n", *HIDDEN, *(f"import os\nimport torch\n{line}\n" for line in lines)]
    paths = _write(tmp_path, texts)
    whole = _without_looking(paths, monkeypatch)
    assert len(whole.findings) > 100
    assert engine.scan(paths, TARGET) == whole


@pytest.mark.parametrize("text", HIDDEN)
def test_a_word_that_is_written_in_parts_is_seen(text: str, tmp_path: Path) -> None:
    assert report(tmp_path, a=text).findings


def test_only_a_program_that_parses_and_speaks_of_nothing_is_silent() -> None:
    assert signs.is_silent(SILENT, TARGET)
    assert not signs.is_silent(f"{SILENT}x = (\n", TARGET)
    assert not signs.is_silent(f"{SILENT}x = y.cuda()\n", TARGET)
    assert not signs.is_silent(f"{SILENT}x = 1  # opcheck: ignore[OC201] none\n", TARGET)


@pytest.mark.parametrize(
    ("constants", "between", "program", "rule"),
    [
        ('PLACE = "cuda"\n', "", "from a import PLACE\nimport torch\nx = torch.zeros(2, device=PLACE)\n", "OC202"),
        ('PLACE = "cuda"\n', "", "import a\nimport torch\nx = torch.zeros(2, device=a.PLACE)\n", "OC202"),
        ('def place(device="cuda"): pass\n', "", "from a import place\nplace()\n", "OC203"),
        (
            'class Net:\n    def __init__(self, device="cuda"): pass\n', "",
            "from a import Net\nn = Net()\n", "OC203",
        ),
    ],
)  # fmt: skip
def test_a_device_of_another_file_is_seen_in_a_file_without_a_word(
    tmp_path: Path, constants: str, between: str, program: str, rule: str
) -> None:
    findings = report(tmp_path, a=constants + between, b=program).findings
    places = [each.locations[0].location for each in findings if each.rule == rule]
    assert [place.file.rpartition("/")[2] for place in places if place][-1] == "b.py"


def test_processes_share_the_files_and_the_report_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"import torch\nx{number} = y.cuda()\n" for number in range(70)]
    paths = _write(tmp_path, [*texts, "x = (\n"])
    whole = engine.scan(paths, TARGET)
    monkeypatch.setattr(engine, "_SMALL", 0)
    monkeypatch.setattr(shares, "count_shares", lambda: 3)
    assert engine.scan(paths, TARGET) == whole
    assert len(whole.findings) == len(texts)
    assert len(whole.problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        'x = """\ncuda\n"""\n',
        'f(\n    """cuda"""\n)\n',
        'x = \\\n"""cuda"""\n',
        'f"{x["#"]}"; x.cuda()\n',
        "x = '#'; x.cuda()\n",
        'x = "\\"#"; x.cuda()\n',
        '"""a"""; x.cuda()\n',
        '"""cuda""".upper()\n',
        "# a\rx.cuda()\n",
        "x = '''a'''  # b\nx.cuda()\n",
    ],
)
def test_code_is_never_taken_for_a_comment_or_a_docstring(text: str) -> None:
    assert "cuda" in signs.without_prose(text)


def test_a_program_that_names_cuda_in_prose_alone_is_silent() -> None:
    prose = '"""x.cuda()"""\n# x.cuda()\ndef f(x):\n    r"""It\'s\n    "x.cuda()".\n    """\n    return x\n'
    assert signs.is_silent(prose, TARGET)


def test_files_that_many_others_call_are_not_parsed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 70
    imports = "".join(f"from m{number} import f{number}\n" for number in range(count))
    calls = "".join(f"f{number}(x)\n" for number in range(count))
    texts = [
        f'import torch\n{imports}def f{number}(x, device="cuda"):\n    return x\n{calls}' for number in range(count)
    ]
    paths = _write(tmp_path, texts)
    parsed: list[str] = []
    parse = source.parse

    def count_parsed(text: str, shown: str) -> ast.Module:
        parsed.append(shown)
        return parse(text, shown)

    monkeypatch.setattr(source, "parse", count_parsed)
    assert len(engine.scan(paths, TARGET).findings) > count
    assert len(parsed) < 3 * count


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import torch as t\nx = t.load('a')\n", "OC227"),
        ("from torch import (\n    save,\n    load,\n)\nx = load('a')\n", "OC227"),
        ("from torch import *\nx = load('a')\n", "OC227"),
        ("import torch\nx = (torch  # a comment\n    .load('a'))\n", "OC227"),
        ("import torch\nx = y.double(  # a comment\n)\n", "OC210"),
        ("import torch\ndtype = torch.float64\nx = y.to(dtype)\n", "OC210"),
        ("import torch\nx = y.to(d, torch.float64)\n", "OC210"),
        ("import torch\nimport numpy as np\nx = torch.from_numpy(np.zeros(3)).to(device)\n", "OC210"),
        ("import os\nos.environ['PYTORCH_ENABLE_MPS_FALBAK'] = '1'\n", "OC216"),
        ("import torch\nf = f'{1}'; print(f'{torch.cuda.current_device()} a text')\n", "OC205"),
    ],
)
def test_a_name_is_seen_as_a_file_may_import_and_lay_it_out(text: str, rule: str, tmp_path: Path) -> None:
    assert rule in {finding.rule for finding in report(tmp_path, a=text).findings}


def test_a_message_and_a_comparison_are_no_words() -> None:
    assert signs.is_silent("import torch\nraise ValueError('there is no cuda here')\n", TARGET)
    assert signs.is_silent("import torch\nx = y.dtype == torch.float64\n", TARGET)
    assert not signs.is_silent("import torch\nx = torch.device('cuda')\n", TARGET)
