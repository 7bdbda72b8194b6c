"""For each rule that names an operator: its program runs on the CPU, and the emulated Mac does the same as before."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import opcheck
from opcheck.common.errors import UsageError
from opcheck.data.registrations import load
from opcheck.features.issue import page
from opcheck.model.records import ExampleTensor, Finding, Report
from opcheck.model.saved import sanitize_report
from opcheck.render import render
from opcheck.reproducer import program_check, script
from opcheck.reproducer.chosen import ChosenFinding, choose, read
from opcheck.reproducer.program_check import TriedProgram, make
from opcheck.simulator.errors import ProcessAbortedError

MPS = "mps"


def eig() -> None:
    torch.linalg.eig(torch.randn(3, 3, device=MPS))


def renorm() -> None:
    weight, index = torch.randn(4, 4, device=MPS), torch.tensor([1, 2], device=MPS)
    torch.nn.functional.embedding(index, weight, max_norm=1.0)


def float64() -> None:
    torch.zeros(3, device=MPS).to(torch.float64)


def complex128() -> None:
    torch.zeros(3, dtype=torch.complex64, device=MPS).to(torch.complex128)


def pool() -> None:
    torch.nn.functional.adaptive_avg_pool2d(torch.randn(1, 1, 7, 7, device=MPS), 3)


def large_eigh() -> None:
    torch.linalg.eigh(torch.eye(80, device=MPS))


def median() -> None:
    torch.ones(3, dtype=torch.int64, device=MPS).median()


def window() -> None:
    torch.kaiser_window(5, device=MPS)


def strided_weight() -> None:
    weight = torch.randn(4, 6, device=MPS).t()
    torch.nn.functional.linear(torch.randn(2, 4, device=MPS), weight)


def cholesky() -> None:
    torch.linalg.cholesky(torch.eye(3, device=MPS))


def reported(function: Callable[[], None], release: str, macos: str, *, fallback: bool = False) -> Report:
    """The report of a run of the function on an emulated Mac."""
    with (
        opcheck.emulate(release, macos, fallback=fallback) as run,
        contextlib.suppress(Exception, ProcessAbortedError),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        function()
    return sanitize_report(run.report)


@pytest.mark.parametrize(
    ("function", "target", "rule", "expected"),
    [
        (eig, ("2.13", "15"), "OC102", "NotImplementedError: The operator 'aten::linalg_eig' is"),
        (renorm, ("2.8", "15"), "OC103", "UserWarning: The operator 'aten::embedding_renorm_' is"),
        (float64, ("2.13", "15"), "OC105", "TypeError: Cannot convert a MPS Tensor to float64"),
        (complex128, ("2.13", "15"), "OC105", "TypeError: "),
        (pool, ("2.13", "15"), "OC106", "RuntimeError: Adaptive pool MPS: input sizes must be"),
        (large_eigh, ("2.15", "15"), "OC107", ""),
        (median, ("2.8", "13"), "OC108", "UserWarning: MPS: no support for int64 for median"),
        (window, ("2.13", "15"), "OC101", ""),
        (strided_weight, ("2.8", "15"), "OC112", "no error, and a result that is not the CPU's:"),
        (cholesky, ("2.5", "15"), "OC102", "NotImplementedError: "),
    ],
)
@pytest.mark.usefixtures("tried_here")
def test_each_rule_has_a_program_that_does_the_same(
    function: Callable[[], None], target: tuple[str, str], rule: str, expected: str
) -> None:
    chosen = choose(reported(function, *target), rule)
    tried = make(chosen)
    assert (tried.on_cpu, tried.emulated) == (True, True)
    assert tried.expected[0].startswith(expected)
    assert tried.expected[0].strip()
    assert "whether it raises" not in tried.notes[0]
    assert tried.text.count("torch.ops.") == 1
    assert re.findall(r"^import \w+$", tried.text, re.MULTILINE) == ["import sys", "import torch"]
    assert "Nothing was observed on a Mac." in " ".join(tried.text.replace("#", " ").split())


@pytest.mark.usefixtures("tried_here")
def test_with_the_variable_the_same_call_warns() -> None:
    tried = make(choose(reported(eig, "2.13", "15", fallback=True), "linalg_eig"))
    assert tried.checked
    assert tried.expected[0].startswith("UserWarning: The operator 'aten::linalg_eig' is not")
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1\n" in tried.text


@pytest.mark.usefixtures("tried_here")
def test_an_operator_takes_the_first_filling_with_which_the_cpu_runs_it(missing: Report) -> None:
    tried = make(made_op(missing, "aten::linalg_cholesky"))
    assert tried.on_cpu
    # What randn, rand and ones give is not positive definite.
    assert "torch.eye(3, 3, dtype=torch.float32)" in tried.text


@pytest.fixture
def missing() -> Report:
    return reported(eig, "2.13", "15")


def with_example(report: Report, **changes: object) -> ChosenFinding:
    """The first finding, its call given something else."""
    (group, *_) = [item for item in report.groups if item.example]
    assert group.example is not None
    example = msgspec.structs.replace(group.example, **changes)
    calls = (msgspec.structs.replace(group, example=example),)
    return choose(msgspec.structs.replace(report, groups=calls), "1")


def made_op(report: Report, op: str) -> ChosenFinding:
    calls = tuple(msgspec.structs.replace(group, op=op) for group in report.groups if group.example)
    findings = tuple(msgspec.structs.replace(finding, op=op) for finding in report.findings)
    return choose(msgspec.structs.replace(report, groups=calls, findings=findings), op)


@pytest.mark.usefixtures("tried_here")
def test_an_operator_that_the_installed_torch_lacks_is_said_to_be_untried(missing: Report) -> None:
    tried = make(made_op(missing, "aten::of_tomorrow"))
    assert (tried.on_cpu, tried.emulated, tried.checked) == (None, None, False)
    assert "# Not tried: torch 2." in tried.text
    assert "torch.ops.aten.of_tomorrow.default(x=x)" not in tried.text
    compile(tried.text, "repro.py", "exec")


@pytest.mark.usefixtures("tried_here")
def test_a_call_that_the_cpu_refuses_too_is_said_to_be_untried(missing: Report) -> None:
    tensor = ExampleTensor(argument="self", dtype="float32", shape=(2, 3), stride=None, layout="strided", device="mps")
    tried = make(with_example(missing, inputs=(tensor,)))
    assert (tried.on_cpu, tried.emulated) == (False, None)
    assert "it does not run on the CPU" in tried.notes[0]


@pytest.mark.usefixtures("tried_here")
def test_a_target_that_does_something_else_is_told(missing: Report) -> None:
    chosen = choose(missing, "1")
    assert chosen.calls is not None
    calls = msgspec.structs.replace(chosen.calls, kind="always")
    other = msgspec.structs.replace(chosen, calls=calls)
    tried = make(other)
    assert (tried.on_cpu, tried.emulated, tried.checked) == (True, False, False)
    assert "does not do the same" in tried.notes[0]


def test_what_takes_too_much_memory_is_not_tried(missing: Report) -> None:
    tensor = ExampleTensor(
        argument="self", dtype="float32", shape=(1 << 16, 1 << 16), stride=None, layout="strided", device="mps"
    )
    tried = make(with_example(missing, inputs=(tensor,)))
    assert (tried.on_cpu, tried.emulated) == (None, None)
    assert tried.notes == ("Not tried here: its tensors take 16.0 GiB.",)


@pytest.mark.usefixtures("tried_here")
def test_an_origin_is_shown_by_the_first_call_that_fails() -> None:
    report = reported(float64, "2.13", "15")
    refused = report.findings[0]
    origin = Finding(
        rule="OC140",
        severity="error",
        message="float64 begins here: a cast; the first call that fails is aten::_to_copy at a.py:8",
        op="aten::_to_copy",
        prints=refused.prints,
        locations=(),
    )
    assert make(choose(msgspec.structs.replace(report, findings=(origin,)), "OC140")).checked


@pytest.mark.usefixtures("tried_here")
def test_an_error_that_only_may_come_is_not_promised() -> None:
    report = reported(strided_weight, "2.8", "15")
    (group,) = [item for item in report.groups if item.op == "aten::linear"]
    result = Finding(rule="OC141", severity="warning", message="may fail", op=group.op, prints="no", locations=())
    quiet = msgspec.structs.replace(group, evidence=(), advisories=())
    chosen = choose(msgspec.structs.replace(report, findings=(result,), groups=(quiet,)), "OC141")
    tried = make(chosen)
    assert tried.expected == ("perhaps, the op lists are not certain: no",)
    assert "whether it raises, only a Mac shows" in tried.notes[0]


def test_a_finding_about_no_one_call_has_none(missing: Report) -> None:
    lost = Finding(rule="OC150", severity="note", message="digits", op="aten::sum", prints="", locations=())
    chosen = choose(msgspec.structs.replace(missing, findings=(lost,)), "OC150")
    assert chosen.calls is None


@pytest.mark.parametrize("which", ["1", "OC102", "oc102", "aten::linalg_eig", "linalg_eig"])
def test_a_finding_is_named_by_number_rule_or_operator(missing: Report, which: str) -> None:
    assert choose(missing, which).number == 1


@pytest.mark.parametrize("which", ["0", "99", "OC1", "", "-1"])
def test_an_unknown_finding_names_the_known_ones(missing: Report, which: str) -> None:
    with pytest.raises(UsageError, match="no finding") as raised:
        choose(missing, which)
    assert "1 OC102" in raised.value.hint


def written(chosen: ChosenFinding) -> page.Issue:
    tried = TriedProgram(text="import torch\n", on_cpu=True, emulated=True, notes=(), expected=("E: text",))
    return page.write(chosen, tried)


@pytest.mark.parametrize(("release", "number"), [("2.13", "141287"), ("2.6", "141287"), ("2.5", "77764")])
def test_a_missing_operator_goes_where_that_release_says(release: str, number: str) -> None:
    chosen = choose(reported(eig, release, "15"), "OC102")
    text = written(chosen)
    assert text.where == f"https://github.com/pytorch/pytorch/issues/{number}"
    commit = load().release(release).commit
    assert f"PyTorch commit: {commit}" in text.body
    assert "`aten::linalg_eig` has no kernel on MPS" in text.body
    assert "nothing was observed on a Mac" in text.body
    assert "collect_env" in text.body
    assert "\n- registration: torch/lib/libtorch\\_cpu.dylib: aten::linalg\\_eig: cpu\\_only\n" in text.body


def test_a_known_fault_goes_to_its_issue_and_another_is_new() -> None:
    known = written(choose(reported(strided_weight, "2.8", "15"), "OC112"))
    assert re.fullmatch(r"https://github.com/pytorch/pytorch/issues/\d+", known.where)
    assert "gives a wrong result, without an error," in known.body
    chosen = choose(reported(complex128, "2.13", "15"), "OC105")
    unlinked = {name: msgspec.structs.replace(item, links=()) for name, item in chosen.report.statements.items()}
    report = msgspec.structs.replace(chosen.report, statements=unlinked)
    new = written(msgspec.structs.replace(chosen, report=report))
    assert new.where.startswith("https://github.com/pytorch/pytorch/issues/new")
    assert "refuses this call" in new.body


def test_what_was_observed_is_not_called_predicted(missing: Report) -> None:
    chosen = choose(missing, "1")
    assert chosen.calls is not None
    seen = msgspec.structs.replace(chosen.calls, confidence="observed")
    text = written(msgspec.structs.replace(chosen, calls=seen))
    assert "nothing was observed" not in text.body


def test_the_children_ask_torch_for_the_schema() -> None:
    schema, problem = program_check._schema("aten::cat")
    assert [(item.name, item.tensors) for item in schema] == [("tensors", True), ("dim", False)]
    assert problem == ""
    assert program_check._schema("aten::of_tomorrow")[1].startswith("AttributeError: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aten::linalg_eig", "aten::x();import os;os"),
        ("float32", "float32);print(1"),
        ("strided", "x y"),
        ("self", "def"),
        ("self", "a=1,b"),
    ],
)
def test_a_report_cannot_write_its_own_code(tmp_path: Path, old: str, new: str) -> None:
    with opcheck.emulate("2.13", "15") as run, contextlib.suppress(NotImplementedError):
        eig()
    content = json.loads(render(run.report, "json"))
    (group,) = [item for item in content["calls"] if item["op"] == "aten::linalg_eig"]
    text = json.dumps(group["example"]).replace(f'"{old}"', f'"{new}"')
    group["example"], group["op"] = json.loads(text), group["op"].replace(old, new)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UsageError, match="is no call"):
        read(str(path))


def test_what_a_report_names_does_not_end_the_comment(missing: Report) -> None:
    hostile = msgspec.structs.replace(missing, model="a\nimport os\r\x0b\x1b[31m")
    tried = make_untried(choose(hostile, "1"))
    assert next(line for line in tried.splitlines() if "import os" in line).startswith("# ")


def make_untried(chosen: ChosenFinding) -> str:
    return script.write(chosen, (), "randn", expected=("a\nb",), checked=())


@pytest.mark.parametrize(
    ("op", "arguments", "reason"),
    [
        ("load_library::x", {}, "no program is written for load_library::x"),
        ("prims::add", {}, "no program is written for prims::add"),
        ("aten::from_file", {"filename": "made", "shared": True, "size": 3}, "names a file"),
        ("aten::from_file", {}, "names a file"),
        ("torchvision::read_file", {"path": "made"}, "names a file"),
    ],
)
def test_a_report_cannot_have_any_operator_run(
    missing: Report, op: str, arguments: dict[str, Any], reason: str
) -> None:
    report = made_op(missing, op).report
    chosen = with_example(report, inputs=(), arguments=arguments)
    with pytest.raises(UsageError, match=reason):
        make(chosen)


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        ([2, 3], [1]),
        ([2, 3], [1, 2, 3]),
        ([-2, 3], None),
        ([2, 3], [-1, 1]),
        ([1 << 62, 1 << 62], None),
        ([10**29], None),
        ([1 << 40], [1 << 40]),
        ([1] * 65, None),
    ],
)
def test_a_tensor_that_there_cannot_be_is_refused(tmp_path: Path, shape: list[int], stride: list[int] | None) -> None:
    content = content_of_eig()
    examples = [group["example"] for group in content["calls"] if group["example"]]
    assert examples
    for example in examples:
        for tensor in example["inputs"]:
            tensor.update(shape=shape, stride=stride)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UsageError, match="a damaged report: "):
        read(str(path))


@pytest.mark.parametrize(
    "target",
    [
        None,
        [],
        {},
        {"torch": "2.13", "macos": "15.0"},
        {"torch": "2.13", "macos": 15, "cpu_fallback": False},
        {"torch": "two", "macos": "15.0", "cpu_fallback": False},
        {"torch": "9" * 5000, "macos": "15.0", "cpu_fallback": False},
    ],
)
def test_a_target_that_is_none_is_refused(tmp_path: Path, target: object) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({**content_of_eig(), "target": target}), encoding="utf-8")
    with pytest.raises(UsageError, match="a damaged report"):
        read(str(path))


def content_of_eig() -> dict[str, Any]:
    with opcheck.emulate("2.13", "15") as run, contextlib.suppress(NotImplementedError):
        eig()
    content: dict[str, Any] = json.loads(render(run.report, "json"))
    return content
