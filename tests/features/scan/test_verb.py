"""``opcheck scan``: formats and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from jsonschema import Draft202012Validator

from opcheck.common.vocabulary import SEVERITIES
from tests.cli.test_command_line import modules_after
from tests.command_line import CommandLine
from tests.render.sarif_schema import LOG

PROGRAM = "import torch\nx.cuda()\nx.double()\ntorch.cuda.empty_cache()\n"


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "a.py").write_text(PROGRAM, encoding="utf-8")
    return "a.py"


def test_the_text_has_the_counts_the_lines_and_the_ways_out(opcheck: CommandLine, program: str) -> None:
    result = opcheck("scan", program)
    assert result.code == 1
    assert result.out.startswith(f"{program} read for torch 2.")
    assert "1 error, 1 warning, 1 note." in result.out
    assert "  2     error     OC201  .cuda() moves to CUDA" in result.out
    assert "  OC201: take the device as a value" in result.out
    assert "nothing was observed on a Mac" in result.out


def test_one_finding_takes_few_lines_and_ends_with_the_next_command(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('import torch\nx = torch.ones(3, device="cuda")\n', encoding="utf-8")
    short, full = (opcheck("scan", "a.py", *flags).out for flags in ((), ("-v",)))
    assert len(short.splitlines()) <= 18
    assert "By rule" not in short
    assert short.splitlines()[-1] == "  next         opcheck scan a.py --diff --unsafe-fixes"
    assert "By rule" in full
    assert "Operators were not judged" in full
    (tmp_path / "a.py").write_text("x = [\n" + "    y.cuda(),\n" * 3 + "]\n", encoding="utf-8")
    assert "By rule" in opcheck("scan", "a.py").out


def test_what_was_not_read_has_no_findings_in_no_headline(opcheck: CommandLine, program: str) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no pipes with names")
    os.mkfifo("pipe.py")
    alone = opcheck("scan", "pipe.py")
    assert alone.code == 3
    assert "Nothing was read.\n" in alone.out
    assert "pipe.py: not a regular file" in alone.out
    Path(program).write_text("import torch\n", encoding="utf-8")
    assert "No findings, 1 not read.\n" in opcheck("scan", ".").out


def test_all_formats_carry_the_same_findings(opcheck: CommandLine, program: str) -> None:
    content = json.loads(opcheck("scan", program, "-f", "json").out)
    assert content["schema"] == "opcheck-scan/2"
    assert [item["rule"] for item in content["findings"]] == ["OC201", "OC210", "OC206"]
    assert yaml.safe_load(opcheck("scan", program, "-f", "yaml").out) == content
    markdown = opcheck("scan", program, "-f", "markdown").out
    assert "| 2 | error | `OC201` |" in markdown
    assert opcheck("scan", program, "-f", "markdown").out == markdown


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("x.cuda()", (1, 1, 1, 0)),
        ("import torch\nx.double()", (0, 1, 1, 0)),
        ("import torch\ntorch.cuda.empty_cache()", (0, 0, 1, 0)),
        ("x.cpu()", (0, 0, 0, 0)),
        ("def f(:", (3, 3, 3, 0)),
    ],
)
def test_exit_codes(opcheck: CommandLine, tmp_path: Path, text: str, codes: tuple[int, ...]) -> None:
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    levels = (*SEVERITIES, "never")
    assert tuple(opcheck("scan", "a.py", "--fail-on", level).code for level in levels) == codes


def test_a_path_that_is_not_there_is_three_lines(opcheck: CommandLine) -> None:
    result = opcheck("scan", "nothing")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 3


def test_the_release_decides_about_variables(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('import os\nos.environ["PYTORCH_MPS_FAST_MATH"] = "1"\n', encoding="utf-8")
    assert opcheck("scan", "a.py", "--fail-on", "note").code == 0
    result = opcheck("scan", "a.py", "--fail-on", "note", "--torch", "2.3")
    assert result.code == 1
    assert "it came with 2.5" in result.out
    # A release newer than the lists is read as the newest, which is no answer unless the user lets it stand.
    assert opcheck("scan", "a.py", "--torch", "99.0").code == 3
    assert opcheck("scan", "a.py", "--torch", "99.0", "--newest-known").code == 0


def test_torch_is_not_loaded(program: str, opcheck: CommandLine) -> None:
    assert not {"torch", "networkx", "rich"} & modules_after("scan", program, "--fail-on", "never")


def test_the_formats_of_ci_services_have_each_finding(opcheck: CommandLine, program: str) -> None:
    codes = ["OC201", "OC210", "OC206"]
    log = json.loads(opcheck("scan", program, "-f", "sarif").out)
    assert list(Draft202012Validator(LOG).iter_errors(log)) == []
    (run,) = log["runs"]
    assert [item["ruleId"] for item in run["results"]] == codes
    assert {item["id"] for item in run["tool"]["driver"]["rules"]} == set(codes)
    lines = opcheck("scan", program, "-f", "jsonl").out.splitlines()
    assert [json.loads(line)["rule"] for line in lines] == codes
    entries = json.loads(opcheck("scan", program, "-f", "gitlab").out)
    assert [entry["check_name"] for entry in entries] == codes
    rows = list(csv.DictReader(io.StringIO(opcheck("scan", program, "-f", "csv").out)))
    assert [(row["rule"], row["line"]) for row in rows] == list(zip(codes, "234", strict=True))
    suite = ET.fromstring(opcheck("scan", program, "-f", "junit").out).find("testsuite")  # noqa: S314  (our own)
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    annotations = opcheck("scan", program, "-f", "github").out.splitlines()
    assert annotations[0].startswith("::error file=a.py,line=2,title=OC201::")
    assert annotations[-1].startswith("1 error, 1 warning, 1 note: a.py on torch 2.")


def test_the_suffix_of_the_file_decides_about_the_format(opcheck: CommandLine, program: str) -> None:
    assert opcheck("scan", program, "-o", "a.sarif").code == 1
    assert json.loads(Path("a.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"


def test_the_configuration_gives_paths_rules_and_what_to_leave_out(opcheck: CommandLine) -> None:
    Path("src/old").mkdir(parents=True)
    for name in ("src/a.py", "src/old/b.py", "other.py"):
        Path(name).write_text("import torch\nx.cuda()\nx.double()\n", encoding="utf-8")
    Path("pyproject.toml").write_text(
        '[tool.opcheck.scan]\npaths = ["src"]\nexclude = ["src/old"]\nselect = ["OC20"]\nfail-on = "never"\n',
        encoding="utf-8",
    )
    result = opcheck("scan", "-f", "json")
    assert result.code == 0
    content = json.loads(result.out)
    results = [(item["rule"], item["locations"][0]["line"]) for item in content["findings"]]
    assert results == [("OC201", "src/a.py:2")]
    assert content["skipped"] == {"files that --exclude names": 1}
    # What is on the command line wins.
    assert opcheck("scan", "other.py", "--fail-on", "warning", "--select", "oc210").code == 1


def test_the_configuration_ignores_until_it_expires(opcheck: CommandLine, program: str) -> None:
    entry = '[[tool.opcheck.ignore]]\nrule = "{}"\nreason = "later"\n{}\n'
    Path("pyproject.toml").write_text(
        entry.format("OC201", 'path = "a.*"')
        + entry.format("OC205", "")
        + entry.format("OC206", "expires = 2020-01-01")
        + entry.format("OC101", ""),
        encoding="utf-8",
    )
    result = opcheck("scan", program, "-f", "json")
    content = json.loads(result.out)
    assert [item["rule"] for item in content["findings"]] == ["OC210", "OC206"]
    assert content["ignored"] == 1
    expired, unused = content["notes"]
    assert "OC206 until 2020-01-01" in expired
    assert "OC205, which is not found" in unused
    assert result.err.splitlines() == [expired, unused]


def test_a_baseline_leaves_what_is_new(opcheck: CommandLine, program: str) -> None:
    args = ("scan", program, "--baseline", "known.json", "--fail-on", "note")
    assert opcheck(*args).code == 2
    made = opcheck(*args, "--update-baseline")
    assert (made.code, made.err) == (0, "3 findings in known.json\n")
    kept = Path("known.json").read_text(encoding="utf-8")
    # Moved lines and renamed variables are known; another call is new.
    moved = PROGRAM.replace("import torch\n", "import torch\n\n\n").replace("x.", "y.")
    Path(program).write_text(moved, encoding="utf-8")
    result = opcheck(*args)
    assert (result.code, "No findings; 3 findings in the baseline." in result.out) == (0, True)
    Path(program).write_text(f"{moved}model.cuda(0)\n", encoding="utf-8")
    new = opcheck(*args, "-f", "json")
    assert new.code == 1
    assert [item["rule"] for item in json.loads(new.out)["findings"]] == ["OC201"]
    assert Path("known.json").read_text(encoding="utf-8") == kept


@pytest.mark.parametrize(
    ("text", "code"),
    [("print('mine')\n", 2), ('{"name": "package"}', 2), ("", 0), ('{"schema": "opcheck-scan-baseline/0"}', 0)],
)
def test_an_update_replaces_a_baseline_of_any_age_and_no_other_file(
    opcheck: CommandLine, program: str, text: str, code: int
) -> None:
    Path("known.json").write_text(text)
    result = opcheck("scan", program, "--baseline", "known.json", "--update-baseline")
    assert (result.code, Path("known.json").read_text() == text) == (code, code == 2), result.err
    assert len(result.err.splitlines()) == 3 or not code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot read the baseline"),
        ("[]", "this is no baseline: its schema is None"),
        (
            '{"schema": "opcheck-scan-baseline/9", "fingerprints": "x", "findings": []}',
            "the baseline is of the newer schema opcheck-scan-baseline/9",
        ),
        (
            '{"schema": "opcheck-scan-baseline/1", "fingerprints": "x", "findings": []}',
            "the baseline has other fingerprints: 'x'",
        ),
        (
            '{"schema": "opcheck-scan-baseline/1", "fingerprints": "opcheck/2", "findings": 1}',
            "the baseline is damaged",
        ),
    ],
)
def test_a_damaged_baseline_is_three_lines(opcheck: CommandLine, program: str, text: str, message: str) -> None:
    Path("known.json").write_text(text, encoding="utf-8")
    result = opcheck("scan", program, "--baseline", "known.json")
    assert (result.code, result.out) == (2, "")
    assert message in result.err.splitlines()[0]
    assert len(result.err.splitlines()) == 3


@pytest.mark.parametrize(
    ("table", "args", "message"),
    [
        ("", (), "no path to read"),
        ("", ("a.py", "--update-baseline"), "no baseline to update"),
        ("", ("a.py", "--select", "OC9"), "scan has no rule 'OC9'"),
        ("scan.pahts = []", (), "unknown key: 'pahts'"),
        ('scan.paths = "a.py"', (), "wrong value for the key 'paths'"),
        ("scan = 1", (), "wrong value for the key 'scan'"),
        ('ignore = [{rule = "OC999", reason = "x"}]', ("a.py",), "OC999"),
    ],
)
def test_a_mistake_is_three_lines(
    opcheck: CommandLine, program: str, table: str, args: tuple[str, ...], message: str
) -> None:
    Path("pyproject.toml").write_text(f"[tool.opcheck]\n{table}\n", encoding="utf-8")
    result = opcheck("scan", *args)
    assert (result.code, result.out) == (2, "")
    assert message in result.err.splitlines()[0]
    assert len(result.err.splitlines()) == 3


CHOICE = "import torch\nd = 'cuda' if torch.cuda.is_available() else 'cpu'\n"


def test_a_fix_keeps_the_permissions(opcheck: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(CHOICE, encoding="utf-8")
    path.chmod(0o754)
    assert opcheck("scan", "a.py", "--diff").code == 1
    assert path.read_text(encoding="utf-8") == CHOICE
    assert opcheck("scan", "a.py", "--fix").code == 0
    assert "mps" in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o754
    assert opcheck("scan", "a.py", "--diff").code == 0


def test_a_file_that_cannot_be_fixed_stays_and_the_others_are_fixed(opcheck: CommandLine, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(CHOICE, encoding="utf-8")
    (tmp_path / "a.py").chmod(0o444)
    result = opcheck("scan", ".", "--fix")
    assert result.code == 3
    assert "1 finding fixed in 1 file" in result.err
    assert "a.py: not fixed: cannot write the file: it is read-only" in result.err
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == CHOICE
    assert "mps" in (tmp_path / "b.py").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"a.py", "b.py"}


@pytest.mark.parametrize(
    "form", ["text", "markdown", "json", "yaml", "jsonl", "csv", "sarif", "github", "gitlab", "junit"]
)
def test_every_format_says_why_a_finding_has_no_fix(opcheck: CommandLine, tmp_path: Path, form: str) -> None:
    program = tmp_path / "a.py"
    program.write_text("import torch\nx.double()\n", encoding="utf-8")
    out = opcheck("scan", str(program), "-f", form, "-v").out
    assert "a narrower dtype changes the numbers" in out
    program.write_text("import torch\ntorch.load('f')\n", encoding="utf-8")
    assert "a narrower dtype" not in opcheck("scan", str(program), "-f", form).out
