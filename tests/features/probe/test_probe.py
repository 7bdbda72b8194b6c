"""The probe on the CPU over real OpInfos, and its process that ends, hangs, and goes on."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import msgspec
import pytest

from opcheck.cli import invoke
from opcheck.common.errors import CaptureError, InputError, UsageError
from opcheck.data import device_evidence
from opcheck.data.device_evidence import EvidenceFile, Settings
from opcheck.features.probe import page
from opcheck.features.probe.probe_messages import Setup
from opcheck.features.probe.prober import probe
from opcheck.render import write

SETTINGS = Settings(samples=3, seconds=1200.0, cpu_fallback=False)
FAKE = "fake_worker:answer"


@pytest.fixture(autouse=True)
def _fake_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture(scope="module")
def real() -> EvidenceFile:
    patterns = ("a*", "sort", "linalg.svd", "nn.functional.max_pool2d", "view")
    setup = Setup(device="cpu", samples=3, patterns=patterns, dtypes=("float32", "int64"))
    return probe(setup, SETTINGS)


def fake(how: str, **more: object) -> EvidenceFile:
    setup = Setup(device=how, samples=1)
    settings = Settings(samples=1, seconds=4.0, cpu_fallback=False)
    return probe(setup, settings, function=FAKE, **more)  # type: ignore[arg-type]


def test_real_opinfos_work_on_the_cpu(real: EvidenceFile) -> None:
    assert real.complete
    assert len(real.results) > 40
    assert {result.outcome for result in real.results} <= {"works", "not compared", "not judged"}
    by_key = {result.key: result for result in real.results}
    added = by_key["add", "float32", "forward"]
    assert added.calls["aten::add.Tensor"] == "agrees"
    assert added.samples == 3
    assert by_key["view", "float32", "forward"].outcome == "works"
    assert by_key["sort", "int64", "forward"].outcome == "works"


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_evidence_is_read_as_it_was_written(real: EvidenceFile, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"e.{suffix}"
    path.write_text(write(real, (), suffix))
    assert device_evidence.load(path) == real
    jsonschema.validate(msgspec.json.decode(msgspec.json.encode(real)), device_evidence.schema())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("opcheck-evidence/1", "opcheck-evidence/9", "is not"),
        ("outcome: works", "outcome: fine", "fine"),
        ("dtype: int64", "dtype: int63", "unknown dtype"),
        ("samples: 3\n  failed: 0", "samples: 0\n  failed: 0", "no sample ran"),
        ("aten::add.Tensor: agrees", "aten::add.Tensor: wrong", "is wrong"),
        ("opinfo: addbmm", "opinfo: add", "occurs twice"),
    ],
)
def test_damaged_evidence_is_refused(real: EvidenceFile, old: str, new: str, message: str, tmp_path: Path) -> None:
    text = write(real, (), "yaml")
    assert old in text
    path = tmp_path / "e.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        device_evidence.load(path)


@pytest.fixture(scope="module")
def ended() -> EvidenceFile:
    """Return the evidence of a run that ended after one result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        return fake("gpu", limit=1)


@pytest.mark.slow
def test_one_that_crashes_or_hangs_loses_one_result_of_a_run_that_goes_on(ended: EvidenceFile) -> None:
    result = fake("gpu", jobs=2, before=ended)
    assert result.complete
    outcomes = {outcome.opinfo: outcome.outcome for outcome in result.results}
    assert outcomes == {
        "add": "works",
        "crash": "crashes",
        "crash everywhere": "not judged",
        "hang": "too long",
        "sub": "works",
    }
    crashed = next(outcome for outcome in result.results if outcome.opinfo == "crash")
    assert "SIGABRT: failed assertion" in crashed.text
    text = write(result, page.document(result), "text")
    assert "failed assertion" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_run_that_ended_has_its_results_and_goes_on_as_the_same_alone(ended: EvidenceFile) -> None:
    assert not ended.complete
    assert len(ended.results) == 1
    with pytest.raises(InputError, match="another run"):
        fake("other", before=ended)


def test_a_bug_of_the_probe_is_no_result() -> None:
    with pytest.raises(CaptureError, match="a bug of ours"):
        fake("bug")


def test_bad_input_is_said_in_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["probe", "--device", "cpu", "--dtype", "float31"]) == 2
    assert invoke(["probe", "--device", "cpu", "--resume"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert len(err.splitlines()) >= 5


def test_a_pattern_that_matches_nothing_is_said() -> None:
    from opcheck.features.probe.child import opinfo

    setup = Setup(device="cpu", samples=1, patterns=("nothing*",))
    with pytest.raises(UsageError, match="no OpInfo"):
        list(opinfo.tasks({}, setup, __import__("torch").device("cpu")))
