"""Configuration files, baselines and lists of models that are damaged, for the verbs that read them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from opcheck.features.gate.assemble import SCHEMA as GATE_SCHEMA
from opcheck.features.gate.assemble import Job, JobResult
from opcheck.model.fingerprint import VERSION
from opcheck.source.baseline import SCHEMA as SCAN_SCHEMA
from tests.features.gate.conftest import CALLS, made
from tests.fuzz.documents import bytes_mutated, damaged, mutated
from tests.fuzz.effort import fuzzed
from tests.fuzz.trial import Trial

CONFIGURATION: dict[str, Any] = {
    "fail-on": "fallback",
    "torch": "2.13",
    "macos": "15",
    "fallback": True,
    "max": {"fallback": 3, "bytes": "10MB"},
    "memory": 16,
    "timeout": 3.5,
    "baseline": "opcheck-baseline.yaml",
    "models": [
        {"name": "encoder", "model": "models.py:encoder", "config": {"layers": 2, "sizes": [1]}},
        {
            "name": "spectrum",
            "model": "models.py:spectrum",
            "max": {"fallback": 3, "bytes": "10MB"},
            "targets": ["supported"],
            "mode": "train",
            "autocast": "float16",
            "dtype": "float32",
            "input": ["2x3:float32", "mask=2x3:bool"],
        },
    ],
    "targets": [
        {"name": "supported", "torch": ">=2.13", "macos": ["15", "26"], "environments": ["ci"]},
        {"torch": ["2.9", "last 2"], "macos": "15", "fail-on": "unknown", "fallback": True},
    ],
    "ignore": [
        {"rule": "OC103", "op": "aten::relu", "reason": "once", "expires": "2027-06-30"},
        {"rule": "OC201", "path": "src/*", "model": "encoder", "reason": "old"},
    ],
    "scan": {"paths": ["train.py"], "exclude": ["tests/*"], "select": ["OC2"], "torch": "2.13"},
}
SOURCE = b"import torch\nmodel = torch.nn.Linear(2, 2).cuda()\n"
FILES = {"train.py": SOURCE, "models.py": b"encoder = spectrum = None\n"}

GATE_BASELINE = {
    "schema": GATE_SCHEMA,
    "opcheck": "0.1.0",
    "fingerprints": VERSION,
    "op_lists": "c3eb78f346c9",
    "models": {
        "models.py:encoder": [
            {
                "fingerprint": "6b63fd6f7f3c40a0ad27e11404610050",
                "rule": "OC103",
                "op": "aten::embedding_renorm_",
                "where": "model.py in forward (net)",
                "line": "y = f7(x)",
                "targets": ["torch 2.13, macOS 15.0"],
            }
        ]
    },
}
SCAN_BASELINE = {
    "schema": SCAN_SCHEMA,
    "fingerprints": VERSION,
    "findings": [{"fingerprint": "ab" * 16, "rule": "OC201", "file": "train.py", "text": "x.cuda()"}],
}
MODELS = {
    "models": [
        "timm:resnet50",
        {
            "model": "transformers:BertModel",
            "config": {"num_hidden_layers": 2},
            "inputs": ["input_ids=1x8:int64"],
            "family": "BertConfig",
        },
    ]
}
VERBS = (
    ["scan"],
    ["scan", "train.py", "-f", "json"],
    ["audit", "models.py:encoder"],
    ["gate"],
    ["gate", "encoder", "--environment", "ci"],
    ["observe", "train.py"],
    ["upgrade", "models.py:encoder"],
)


def as_toml(document: Any) -> bytes:
    """The document as TOML, text for text where TOML has no such value."""
    if not isinstance(document, dict):
        return b"x = 1"
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        lines = [f"{_text(str(key))} = {_value(value)}" for key, value in document.items()]
    finally:
        sys.set_int_max_str_digits(before)
    return "\n".join(lines).encode("utf-8", errors="replace")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        items = (f"{_text(str(key))} = {_value(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _text(value)
    return {None: "1979-05-27", True: "true", False: "false"}.get(value, str(value))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=True).replace("\\ud", "\\u0").replace("\x7f", " ")


DAMAGED = st.one_of(mutated([CONFIGURATION]).map(as_toml), bytes_mutated([as_toml(CONFIGURATION)]))


@fuzzed(
    st.tuples(DAMAGED, st.sampled_from(VERBS)),
    quick=100,
    long=8000,
    kept=[
        (b'torch = "fallback"', ["observe", "train.py"]),
        (b"config = {day = 1979-05-27}", ["audit", "models.py:encoder"]),
        (b'targets = [{environments = ["\\u001f"]}]', ["gate", "--environment", "ci"]),
    ],
)
def test_an_own_configuration(trial: Trial, content: tuple[bytes, list[str]]) -> None:
    text, arguments = content
    with gated():
        trial(arguments, {**FILES, "opcheck.toml": text})


@fuzzed(
    st.tuples(
        mutated([{"tool": {"opcheck": CONFIGURATION}, "project": {"dependencies": ["xformers"]}}]),
        st.sampled_from(VERBS),
    ),
    quick=50,
    long=4000,
)
def test_a_table_of_pyproject(trial: Trial, content: tuple[Any, list[str]]) -> None:
    document, arguments = content
    with gated():
        trial(arguments, {**FILES, "pyproject.toml": as_toml(document)})


@fuzzed(st.tuples(damaged([GATE_BASELINE]), st.booleans()), quick=80, long=6000)
def test_a_baseline_of_the_gate(trial: Trial, content: tuple[bytes, bool]) -> None:
    text, update = content
    arguments = ["gate", "models.py:encoder", "--jobs", "1", "--no-cache", "--baseline", "b.yaml"]
    with gated():
        trial([*arguments, *(["--update-baseline"] if update else [])], {**FILES, "b.yaml": text})


@fuzzed(damaged([SCAN_BASELINE], with_yaml=False), quick=60, long=4000)
def test_a_baseline_of_a_scan(trial: Trial, content: bytes) -> None:
    trial(["scan", "train.py", "--baseline", "b.json"], {**FILES, "b.json": content})


@fuzzed(
    st.tuples(
        st.one_of(damaged([MODELS]), mutated([MODELS]).map(as_toml)), st.sampled_from((".yaml", ".toml", ".txt"))
    ),
    quick=60,
    long=4000,
    kept=[(b"", ".txt"), (b"9" * 5000, ".txt"), (b'"\\x05": 1', ".yaml"), (b'{"models": null}', ".yaml")],
)
def test_a_list_of_models(trial: Trial, content: tuple[bytes, str]) -> None:
    text, suffix = content
    arguments = ["sweep", f"list{suffix}", "--torch", "2.13", "--jobs", "1"]
    with swept():
        trial(arguments, {f"list{suffix}": text})


def gated() -> Undone:
    """A gate whose models are not captured: what a child would bring is made here."""
    patch = pytest.MonkeyPatch()

    def work(job: Job, say: Callable[[str], None]) -> JobResult:
        say("building the model")
        calls = CALLS["fallback"]
        return JobResult(reports=tuple(made(calls, target) for target in job.targets))

    patch.setattr("opcheck.features.gate.assemble.work", work)
    return Undone(patch)


def swept() -> Undone:
    """A sweep that plans and runs nothing: its children import torch."""
    patch = pytest.MonkeyPatch()
    patch.setattr("opcheck.features.sweep.sweep_engine.Engine.run", lambda *_args, **_options: iter(()))
    patch.setattr("opcheck.features.sweep.sweep_folder.Folder.begin", lambda *_args: None)
    patch.setattr("opcheck.features.sweep.sweep_engine.sweep", lambda *_args, **_options: 0)
    patch.setattr("opcheck.features.sweep.sweep_folder.Folder.__enter__", lambda folder: folder)
    patch.setattr("opcheck.features.sweep.sweep_folder.write", lambda _path: {"verdicts": 0, "failures": 0})
    return Undone(patch)


class Undone:
    """What was replaced, for the length of a with block."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __enter__(self) -> None:
        """Nothing more to do."""

    def __exit__(self, *_error: object) -> None:
        self._patch.undo()
