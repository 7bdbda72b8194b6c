from __future__ import annotations

from opcheck.judge.assembly import report
from tests.judge.rules.checking import findings_by
from tests.made import call, make_lists, make_target, make_trace


def test_is_an_error_without_the_variable() -> None:
    (finding,) = findings_by("OC102", call("aten::foo"))
    assert finding.severity == "error"
    assert finding.prints.startswith("The operator 'aten::foo' is not currently implemented")
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1 python ..." in finding.hint


def test_is_a_warning_with_the_variable() -> None:
    (finding,) = findings_by("OC102", call("aten::foo"), cpu_fallback=True)
    assert finding.severity == "warning"
    assert finding.hint == "no release in the op lists has an MPS kernel for it"


def test_silent_on_calls_that_always_fall_back() -> None:
    assert not findings_by("OC102", call("aten::embedding_renorm_"), call("aten::mm"))


def test_names_the_oldest_newer_release_with_a_kernel_of_the_deciding_overload() -> None:
    lists = make_lists(
        {
            "aten::f": dict.fromkeys(("2.11", "2.12", "2.13", "2.14"), "out:aten::f.out"),
            "aten::f.out": {"2.11": "kernel", "2.12": "cpu_only", "2.13": "kernel", "2.14": "kernel"},
        },
        lines=("2.11", "2.12", "2.13", "2.14"),
    )
    made = report(make_trace(call("aten::f")), make_target("2.12"), lists)
    assert made.findings[0].hint.endswith("torch 2.13 has an MPS kernel for it")


def test_names_an_older_release_where_a_kernel_was_lost() -> None:
    lists = make_lists({"aten::f": {"2.12": "kernel", "2.13": "cpu_only", "2.14": "cpu_only"}})
    made = report(make_trace(call("aten::f")), make_target("2.13"), lists)
    assert made.findings[0].hint.endswith("torch 2.12 has an MPS kernel for it")
