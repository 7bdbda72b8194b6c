"""A capture that serves several targets is, byte by byte, the capture that each of them would have had of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from opcheck.capture.child import run
from opcheck.capture.child.shared import captures
from opcheck.capture.parent import environment, of_each
from opcheck.capture.request import CaptureRequest, Captures
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.model.records import Trace
from opcheck.simulator import target_reads
from opcheck.worker.worker import run_forked
from tests.judge.audit_targets import models, release_branches
from tests.judge.audit_targets.test_release_branches import TINY
from tests.made import make_target

FILE = str(Path(models.__file__))
RELEASES = f"{Path(release_branches.__file__)}:branches"
MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("attention", {}),
    ("attention", {"mode": "train"}),
    ("attention", {"mode": "train", "autocast": "bfloat16"}),
    ("images", {}),
    ("images", {"mode": "train", "optimizer": "sgd"}),
    ("recurrent", {"grad": True}),
    ("transformed", {}),
    ("wide", {}),
    ("old", {"grad": True}),
    ("asks_for_macos", {}),
    ("asked_when_built", {}),
    (RELEASES, {}),
    ("plain", {"mode": "train"}),
)
#: tried on a few targets always, as all are on all targets where there is time
QUICK = [MODELS[n] for n in (0, 2, 3, 8, 9, 11)]
NAMES = [" ".join([name.rpartition(":")[2], *map(str, options.values())]) for name, options in MODELS]


def _all() -> tuple[Target, ...]:
    """Every release on every macOS that it starts on, with the variable and without."""
    return tuple(
        Target(torch=Version.parse(release.line), macos=Version(major, 0), cpu_fallback=fallback)
        for release in load().releases
        for major in (13, 14, 15, 26)
        if Version(major, 0) >= Version.parse(release.minimum_macos)
        for fallback in (False, True)
    )


ALL = _all()
#: those whose torch.backends.mps knows is_macos_or_newer
NEWER = [target for target in ALL if target.torch >= Version(2, 3)]
#: a few of all, from both sides of most branches
SPREAD = tuple(
    Target(torch=Version.parse(release), macos=Version(major, 0), cpu_fallback=fallback)
    for release, major, fallback in (("1.13", 13, False), ("2.9", 14, True), ("2.15", 26, False))
)


#: models of libraries that ask for the release when they are imported, or in a call
LIBRARIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transformers:LlamaModel", TINY),
    (
        "diffusers:Transformer2DModel",
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 8, "norm_num_groups": 4},
    ),
    ("timm:vit_tiny_patch16_224", {"depth": 2}),
    ("torchvision:resnet18", {}),
)
BRANCHING = tuple(
    Target(torch=Version.parse(release), macos=Version(15)) for release in ("2.4", "2.6", "2.7", "2.8", "2.12", "2.13")
)


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """What the first capture imports late: the forks have it."""
    run.run(_request("plain", mode="train"), _say)


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests in this process have been on other Macs."""
    monkeypatch.setattr(target_reads.READS, "answers", {})
    monkeypatch.setattr(target_reads.READS, "fallback", set())


def _say(text: str, *, seconds: float = 0.0) -> None:
    """Nobody waits for it."""


def _request(model: str, **options: Any) -> CaptureRequest:
    name = model if ":" in model else f"{FILE}:{model}"
    request = CaptureRequest(model=name, target=make_target(), time_limit=1200.0)
    return msgspec.structs.replace(request, **options)


def _forked(make: Callable[[], Any], kind: Any) -> Any:
    """In a process of its own: the model is loaded there.  One line calls both kinds: it is in the traces."""

    def work() -> Any:
        torch.set_num_threads(1)  # a pool of threads does not live on in a fork
        made = make()
        return made.trace if isinstance(made, run.Captured) else made

    return run_forked(work, kind, 3600.0)


def _shared(request: CaptureRequest, targets: Sequence[Target]) -> Captures:
    made: Captures = _forked(functools.partial(captures, request, targets, _say), Captures)
    return made


def _traces(request: CaptureRequest, targets: Sequence[Target]) -> list[Trace | OpcheckError]:
    results: dict[int, Trace | OpcheckError] = {}
    left = list(range(len(targets)))
    while left:
        asked = [targets[n] for n in left]
        captured = _shared(request, asked)
        for shared in captured.shared:
            results.update((left[n], trace) for n, trace in of_each(shared, asked))
        left = [left[n] for n in captured.left]
    return [results[n] for n in range(len(targets))]


def _own(request: CaptureRequest, target: Target, monkeypatch: pytest.MonkeyPatch) -> Trace:
    asked = msgspec.structs.replace(request, target=target)
    result = environment(cpu_fallback=target.cpu_fallback)
    monkeypatch.setenv(target_reads.FALLBACK_VARIABLE, result[target_reads.FALLBACK_VARIABLE])
    made: Trace = _forked(functools.partial(run.run, asked, _say), Trace)
    return msgspec.structs.replace(made, environment=result)


def _check(model: str, options: dict[str, Any], targets: Sequence[Target], monkeypatch: pytest.MonkeyPatch) -> None:
    request = _request(model, **options)
    for target, trace in zip(targets, _traces(request, targets), strict=True):
        assert isinstance(trace, Trace)
        assert trace.calls or trace.problems, target
        own = _own(request, target, monkeypatch)
        assert msgspec.json.encode(trace) == msgspec.json.encode(own), target


@pytest.mark.parametrize(
    ("model", "options"), QUICK, ids=["inference", "autocast", "images", "old", "macos", "release"]
)
def test_a_shared_capture_is_the_one_of_its_own(
    model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(model, options, SPREAD, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "options"), MODELS, ids=NAMES)
def test_so_it_is_on_all_targets(model: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _check(model, options, ALL, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "config"), LIBRARIES, ids=[name for name, _ in LIBRARIES])
def test_a_library_answers_each_target_as_in_a_process_of_its_own(
    model: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(model, {"config": config, "call": ("forward",)}, BRANCHING, monkeypatch)


def test_each_class_of_answers_loads_the_model_once(tmp_path: Path) -> None:
    log, model = tmp_path / "log", tmp_path / "model.py"
    model.write_text(
        f"import os, torch\nopen({str(log)!r}, 'a').write('begins ')\n"
        "number = sum(torch.__version__ >= version for version in ('2.5', '2.8', '2.11'))\n"
        f"open({str(log)!r}, 'a').write(f'{{number}} ')\n"
        "def branches():\n"
        "    return (lambda x: x + number), (torch.randn(4),)\n"
    )
    targets = [target for target in ALL if target.macos == Version(15) and not target.cpu_fallback]
    result = _shared(_request(f"{model}:branches"), targets)
    classes = [[targets[n].torch for n in item.targets] for item in result.shared]
    assert [max(served) for served in classes] == [Version(2, n) for n in (15, 10, 7, 4)]
    assert sorted(n for item in result.shared for n in item.targets) == [*range(len(targets))]
    assert log.read_text().split() == ["begins", "3", "begins", "2", "begins", "1", "begins", "0"]


def test_what_asks_nothing_is_captured_once() -> None:
    (shared,) = _shared(_request("plain"), ALL).shared
    assert sorted(shared.targets) == list(range(len(ALL)))


def test_a_program_that_reads_the_variable_is_captured_with_and_without_it() -> None:
    result = _shared(_request("asks_for_macos"), NEWER).shared
    kinds = [{(NEWER[n].macos >= Version(15, 0), NEWER[n].cpu_fallback) for n in item.targets} for item in result]
    # On macOS 15 it does not look at the variable.
    assert sorted(map(sorted, kinds)) == [[(False, False)], [(False, True)], [(True, False), (True, True)]]


def test_what_was_asked_while_it_was_built_needs_another_process() -> None:
    newer = [target for target in NEWER if target.torch == Version(2, 6)]
    result = _shared(_request("asked_when_built"), newer)
    assert {newer[n].macos.major for n in result.left} == {13}
    assert {newer[n].macos.major for item in result.shared for n in item.targets} == {14, 15, 26}


def test_each_class_of_releases_has_an_import_of_its_own() -> None:
    result = _shared(_request(RELEASES), ALL)
    assert not result.left
    classes = [{ALL[n].torch for n in item.targets} for item in result.shared]
    newest, middle, oldest = classes
    assert min(newest) == Version(2, 8)
    assert (min(middle), max(middle)) == (Version(2, 3), Version(2, 7))
    assert max(oldest) == Version(2, 2)
    calls = [[call.op for call in item.trace.calls][-1] for item in result.shared if item.trace]
    assert calls == ["aten::gelu", "aten::relu", "aten::sin"]


def test_one_class_that_dies_or_raises_is_not_the_others() -> None:
    targets = [Target(torch=Version(2, 11), macos=Version(major, 0)) for major in (13, 14, 15)]
    died, raised, ran = _traces(_request("raises"), targets)
    assert isinstance(died, CaptureError)
    assert "exited with code 7" in died.message
    assert isinstance(raised, Trace)
    assert isinstance(ran, Trace)
    assert [problem.kind for problem in raised.problems] == ["model_raised"]
    assert ran.complete


def test_a_process_that_was_another_mac_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_reads.READS, "answers", {(target_reads.is_newer, (14, 0)): False})
    with pytest.raises(CaptureError, match="for another Mac"):
        captures(_request("plain"), [ALL[-1]], _say)
