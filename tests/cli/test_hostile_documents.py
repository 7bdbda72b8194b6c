"""Documents that no reader can take end in three lines and the exit code of wrong usage, whichever verb reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine

NUMBER = "9" * 5000
TEXTS = {
    "deep": "[" * 50_000,
    "dashes": "- " * 50_000 + "a",
    "bomb": "schema: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
    "self": "schema: &a [*a]",
    "schema of lists": "schema: " + "[" * 90 + "]" * 90,
    "version": f'{{"schema": "opcheck-report/{NUMBER}"}}',
    "baseline": f"schema: opcheck-baseline/{NUMBER}",
    "number": f"schema: {NUMBER}",
    "bytes": "\0",
    "long": "schema: " + "x" * 100_000,
    "date": "2001-99-99",
}
VERBS = (
    ("diff", "{}", "{}"),
    ("verify", "{}", "{}"),
    ("repro", "{}", "1"),
    ("issue", "{}", "1"),
    ("gate", "--baseline", "{}"),
    ("scan", "--baseline", "{}", "."),
    ("doctor", "--from", "{}"),
    ("sweep", "{}"),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("opcheck.toml").write_text('[[models]]\nmodel = "m.py:M"\n', encoding="utf-8")
    return tmp_path


def refused(opcheck: CommandLine, *arguments: str) -> None:
    result = opcheck(*arguments)
    assert (result.code, result.out) == (2, "")
    lines = result.err.splitlines()
    assert len(lines) <= 3, result.err
    assert max(map(len, lines)) < 2000
    assert "Traceback" not in result.err


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_exceeds_limits(opcheck: CommandLine, project: Path, verb: tuple[str, ...], text: str) -> None:
    file = project / "hostile.yaml"
    file.write_text(TEXTS[text], encoding="utf-8")
    refused(opcheck, *(part.format(file) for part in verb))


@pytest.mark.parametrize("verb", VERBS[:-1], ids=lambda verb: verb[0])
@pytest.mark.parametrize("file", ["/dev/full", "/dev/zero", "/dev/null", ".", "loop", "none", "a\0b"])
def test_a_file_that_is_none(opcheck: CommandLine, project: Path, verb: tuple[str, ...], file: str) -> None:
    (project / "loop").symlink_to("loop")
    refused(opcheck, *(part.format(file) for part in verb))


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        ".".join(["a"] * 2000) + " = 1",
        f"timeout = {NUMBER}",
        f'torch = "{NUMBER}"',
        f'torch = "2.{NUMBER}"',
        f"jobs = 0x{'f' * 5000}",
        "\0",
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("verb", ["audit", "gate"])
def test_a_configuration(opcheck: CommandLine, project: Path, verb: str, text: str) -> None:
    (project / "opcheck.toml").write_text(text, encoding="utf-8")
    refused(opcheck, verb, *(["m.py:M"] if verb == "audit" else []))


@pytest.mark.parametrize(
    "arguments",
    [
        ("op", "aten::mm", "--torch", NUMBER),
        ("op", "aten::mm", "--macos", f"{NUMBER}.1"),
        ("op", "aten::mm", "--torch", f"2.{NUMBER}"),
        ("diff", NUMBER, "2.13"),
        ("matrix", "--torch", f"last {NUMBER}"),
        ("audit", "m.py:M", "--config", f"a={NUMBER}"),
        ("audit", "m.py:M", "--config", "a=2001-99-99"),
        ("audit", "m.py:M", "--config", 'a=!!int ""'),
        ("audit", "m.py:M", "--config", "a=" + "[" * 50_000),
        ("audit", "m.py:M", "--max", f"transfers={NUMBER}"),
        ("audit", "m.py:M", "--max", f"bytes={NUMBER}GB"),
        ("gate", "-j", NUMBER),
        ("lists", "build", NUMBER),
        *(
            (*verb, "--timeout", seconds)
            for verb in [("audit", "m.py:M"), ("compile", "m.py:M"), ("sweep", "m.py:M")]
            for seconds in ("inf", "-inf", "nan", "1e400", "-1", "0", "1e300", NUMBER)
        ),
        *(("audit", "m.py:M", "--memory-limit", amount) for amount in ("inf", "nan", "1e400", "-1", "1e300")),
        ("sweep", "m.py:M", "--memory-limit", "inf"),
    ],
    ids=lambda arguments: " ".join(arguments)[:50],
)
def test_a_number_that_is_none(opcheck: CommandLine, project: Path, arguments: tuple[str, ...]) -> None:
    (project / "m.py").write_text("def M(x):\n    return x\n", encoding="utf-8")
    result = opcheck(*arguments)
    # A version may also be newer than what is known, which is no wrong usage.
    assert result.code in {2, 3}
    assert 0 < len(result.err.splitlines()) <= 3, result.err
    assert "Traceback" not in result.err
