"""Whole comparisons on the CPU: nothing wrong, a planted operator, a model that raises, one that hangs, no device."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import msgspec
import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.vocabulary import Mode
from opcheck.features.compare import page
from opcheck.numerics.compare.comparison_records import SHOWS, ComparePlan, DeviceComparison
from opcheck.numerics.compare.device_comparison import compare
from opcheck.render import write
from tests.made import make_target

MODELS = Path(__file__).with_name("models.py")
PLANTED = Path(__file__).parents[3] / "scripts" / "planted"


def run(attribute: str, plan: ComparePlan, *, mode: Mode = "inference", limit: float = 1200.0) -> DeviceComparison:
    request = CaptureRequest(model=f"{MODELS}:{attribute}", target=make_target(), mode=mode, time_limit=limit)
    return compare(request, plan)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> DeviceComparison:
    folder = tmp_path_factory.mktemp("planted") / "repro"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PLANTED))
        patch.setenv("OPCHECK_PLANTED", "CPU")
        return run("net", ComparePlan(device="cpu", repro=str(folder), times=1), mode="train")


def test_the_planted_operator_alone_is_named_and_its_reproducer_shows_it(planted: DeviceComparison) -> None:
    assert [item.op for item in planted.wrong] == ["aten::gelu"]
    first = planted.wrong[0]
    assert first.place.location is not None
    assert "gelu" in first.place.location.text
    assert first.place.phase == "forward"
    assert first.error is not None
    assert first.error > 100
    assert planted.reproducer is not None
    assert planted.reproducer.state == SHOWS


def test_what_draws_random_numbers_is_not_compared_and_says_so(planted: DeviceComparison) -> None:
    by_op = {operator.op: operator for operator in planted.operators}
    assert by_op["aten::bernoulli_.float"].outcomes == {"not compared": 1}
    assert "random" in next(iter(by_op["aten::bernoulli_.float"].reasons))
    assert by_op["aten::convolution_backward"].outcomes == {"agrees": 1}
    assert planted.loss


def test_times_are_of_the_compared_operators(planted: DeviceComparison) -> None:
    timed = {time.op for time in planted.times}
    assert {"aten::gelu", "aten::convolution"} <= timed
    assert "aten::bernoulli_.float" not in timed
    assert all(time.device > 0 for time in planted.times)


@pytest.mark.parametrize("name", ["text", "markdown", "json", "yaml"])
def test_every_format_names_it(planted: DeviceComparison, name: str) -> None:
    text = write(planted, page.document(planted), name)
    assert "gelu" in text
    if name == "text":
        assert max(map(len, text.splitlines())) <= 100
    if name == "json":
        jsonschema.validate(msgspec.json.decode(text), msgspec.json.schema(DeviceComparison))
        assert msgspec.json.decode(text, type=DeviceComparison) == planted


def test_the_cpus_own_kernels_are_right(tmp_path: Path) -> None:
    result = run("net", ComparePlan(device="cpu", repro=str(tmp_path / "repro")))
    assert result.complete
    assert not result.wrong
    assert not (tmp_path / "repro").exists()
    assert result.outcomes["agrees"] > 8


def test_a_model_that_raises_gives_what_ran_before() -> None:
    result = run("broken", ComparePlan(device="cpu"))
    assert not result.complete
    assert "it does not like this" in result.problem
    assert result.outcomes == {"agrees": 1}
    assert "broke off" in write(result, page.document(result), "text")


@pytest.mark.slow
def test_a_model_that_hangs_is_ended() -> None:
    # Importing torch counts: where that alone takes so long, the parent ends it.
    for limit in (10, 40, 160, 640):
        try:
            result = run("endless", ComparePlan(device="cpu"), limit=limit)
            break
        except CaptureError as error:
            assert f"after {limit} s" in error.message  # noqa: PT017
    assert not result.complete
    assert f"not done after {limit} s" in result.problem


@pytest.mark.parametrize("device", ["mps", "nonsense", "meta"])
def test_a_device_that_is_not_there_is_said_in_three_lines(device: str) -> None:
    from opcheck.numerics.child import installed_devices

    with pytest.raises(UsageError) as raised:
        installed_devices.require(device)
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert device in lines[0]
    assert "cpu" in lines[2]
