"""What a target makes of compiled variants, without compiling any."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.common.errors import CaptureError
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.features.compile.compile_records import (
    CompiledVariants,
    CompileFailure,
    CompileReport,
    Extern,
    FusedNode,
    MetalKernel,
    ResultDifference,
    SideGraph,
    TriedVariant,
    Variant,
)
from opcheck.features.compile.target_outcomes import eager_runs, exit_code, report
from opcheck.model.records import SourceLocation

LINE = SourceLocation(file="a.py", line=3, function="f", text="return x.sinh()")
SINH = CompileFailure(
    kind="operator", message="Inductor's Metal backend does not implement sinh", op="aten::sinh", location=LINE
)
EAGER = TriedVariant(variant=Variant(backend="eager"), outcome="works", graphs=1)
AOT = TriedVariant(variant=Variant(backend="aot_eager"), outcome="works", graphs=1)


def kernel(name: str = "generated_kernel_0", source: str = "", *, buffers: int = 2) -> MetalKernel:
    node = FusedNode(name="sin", op="aten::sin", location=LINE)
    return MetalKernel(name=name, source=source, nodes=(node,), buffers=buffers)


def metal(*graphs: SideGraph, dtype: str = "float32", again: tuple[SideGraph, ...] = ()) -> TriedVariant:
    failed = any(graph.failures for graph in graphs)
    return TriedVariant(
        variant=Variant(backend="inductor", metal=True, dtype=dtype),
        outcome="fails" if failed else "works",
        graphs=len(graphs),
        side=graphs,
        side_again=again,
    )


def graph(*kernels: MetalKernel, failures: tuple[CompileFailure, ...] = (), **fields: object) -> SideGraph:
    made = SideGraph(phase="inference", nodes=1, kernels=kernels, failures=failures)
    externs = fields.get("externs", ())
    assert isinstance(externs, tuple)
    return SideGraph(phase=made.phase, nodes=1, kernels=kernels, failures=failures, externs=externs)


def judged_report(lists: OpLists, *tried: TriedVariant, torch: str = "2.13") -> CompileReport:
    compiled = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=tried)
    target = Target(torch=Version.parse(torch), macos=Version(15))
    return report(compiled, target, lists, "opcheck 0")


def outcomes(judged: CompileReport) -> list[str]:
    return [item.outcome for item in judged.compiled.tried if item.variant.metal]


def test_what_works_is_to_be_used(lists: OpLists) -> None:
    judged = judged_report(lists, EAGER, metal(graph(kernel())), metal(graph(kernel()), dtype="float16"))
    assert judged.advice == "use inductor with float32 and float16"
    assert judged.rows[1].outcomes == {"float32": "works", "float16": "works"}


def test_what_works_in_inference_alone_is_said_so(lists: OpLists) -> None:
    trained = metal(graph(failures=(SINH,)))
    variant = msgspec.structs.replace(trained.variant, training=True)
    trained = msgspec.structs.replace(trained, variant=variant)
    half = metal(graph(kernel()), dtype="float16")
    judged = judged_report(lists, EAGER, metal(graph(kernel())), trained, half)
    assert judged.advice.startswith("use inductor in inference; not in training: ")


@pytest.mark.parametrize(
    ("torch", "outcome", "mended"), [("2.13", "fails", ""), ("2.14", "fails", ""), ("2.15", "could not tell", "2.15")]
)
def test_what_the_target_has_mended_is_not_held_against_it(
    torch: str, outcome: str, mended: str, lists: OpLists
) -> None:
    judged = judged_report(lists, AOT, EAGER, metal(graph(failures=(SINH,))), torch=torch)
    assert outcomes(judged) == [outcome]
    assert judged.failures[0].mended == mended
    assert judged.failures[0].links == ("https://github.com/pytorch/pytorch/pull/197403",)
    assert judged.advice.startswith("use backend='aot_eager': ")


@pytest.mark.parametrize(("torch", "outcome"), [("2.13", "fails"), ("2.14", "works")])
def test_kernels_of_one_name_fail_where_the_release_has_the_defect(torch: str, outcome: str, lists: OpLists) -> None:
    judged = judged_report(lists, metal(graph(kernel(), kernel())), torch=torch)
    assert outcomes(judged) == [outcome]
    assert judged.failures[0].line == "a.py:3"


def test_a_kernel_with_too_many_buffers_fails(lists: OpLists) -> None:
    judged = judged_report(lists, metal(graph(kernel(buffers=41))))
    assert outcomes(judged) == ["fails"]
    assert "41 buffers" in judged.failures[0].message


def test_a_failure_with_another_shape_leaves_the_first(lists: OpLists) -> None:
    judged = judged_report(lists, EAGER, metal(graph(kernel()), again=(graph(failures=(SINH,)),)))
    assert outcomes(judged) == ["one shape only"]
    assert "sinh" in judged.advice


@pytest.mark.parametrize("torch", ["2.5", "2.6"])
def test_a_release_without_the_backend_says_so(torch: str, lists: OpLists) -> None:
    judged = judged_report(lists, AOT, metal(graph(kernel())), torch=torch)
    assert outcomes(judged) == ["no backend"]
    assert (judged.kernels, judged.advisories) == (0, ())
    assert judged.advice.startswith(f"use backend='aot_eager': torch {torch} has no Metal backend")


def test_the_prototype_is_called_one(lists: OpLists) -> None:
    judged = judged_report(lists, metal(graph(kernel())), torch="2.7")
    assert "a prototype in 2.7" in judged.advice
    assert [advisory.id for advisory in judged.advisories] == ["prototype"]


@pytest.mark.parametrize(("torch", "known"), [("2.12", ["welford-barrier"]), ("2.13", [])])
def test_a_known_defect_is_shown_where_a_kernel_meets_it(torch: str, known: list[str], lists: OpLists) -> None:
    source = "c10::metal::threadgroup_welford_reduce(tmp_acc_0, 8)"
    judged = judged_report(lists, metal(graph(kernel(source=source))), torch=torch)
    assert [advisory.id for advisory in judged.advisories] == known
    assert [(advisory.kernels, advisory.line) for advisory in judged.advisories] == [(1, "a.py:3")] * len(known)


def test_extern_does_not_mean_supported(lists: OpLists) -> None:
    externs = (
        Extern(op="aten::mm.out", dtypes=("float32",), location=LINE),
        Extern(op="aten::_linalg_eigh", dtypes=("float32",), module="body.0"),
    )
    judged = judged_report(lists, metal(graph(kernel(), externs=externs)))
    assert [(extern.op, extern.status.split()[0]) for extern in judged.externs] == [
        ("aten::_linalg_eigh", "fallback"),
        ("aten::mm.out", "native"),
    ]
    assert judged.externs[0].module == "body.0"
    assert outcomes(judged) == ["needs fallback"]
    assert "raises without PYTORCH_ENABLE_MPS_FALLBACK=1" in judged.advice


def test_identical_failures_are_told_once(lists: OpLists) -> None:
    graphs = [graph(failures=(SINH,))]
    judged = judged_report(lists, metal(*graphs), metal(*graphs, dtype="float16"))
    (group,) = judged.failures
    assert group.variants == ()  # all of them
    (group,) = judged_report(lists, EAGER, metal(*graphs), metal(*graphs, dtype="float16")).failures
    assert group.variants == ("inductor for Metal (inference, float32 and float16)",)


UNDECLARED = """\
kernel void k(
) {
    for(auto r0_1_cnt = 0; r0_1_cnt < 2; ++r0_1_cnt) {
        int r0_1 = r0_1_cnt;
    }
    auto tmp0 = in_ptr0[r0_1];
}
"""


def test_one_fault_of_many_kernels_is_one_finding_with_the_defect_of_the_target(lists: OpLists) -> None:
    kernels = [kernel(f"generated_kernel_{number}", UNDECLARED) for number in range(3)]
    compiled = CompiledVariants(
        model="m", installed_torch="2.13.0", metal_backend="2.12.1", device="cpu", tried=(metal(graph(*kernels)),)
    )
    target = Target(torch=Version(2, 12), macos=Version(15))
    (group,) = report(compiled, target, lists, "").failures
    assert (group.defect, group.places, group.mended) == ("two-loops", 3, "")
    assert group.message.startswith("two-loops: Two loops over one reduction")
    assert group.message.endswith("generated_kernel_0, line 6: r0_1 is used where it is not declared")


def test_a_run_that_fails_has_a_backend_of_its_own(lists: OpLists) -> None:
    trained = metal(graph(failures=(SINH,)))
    aot, trained = (
        msgspec.structs.replace(t, variant=msgspec.structs.replace(t.variant, training=True)) for t in (AOT, trained)
    )
    judged = judged_report(lists, AOT, metal(graph(kernel())), aot, trained)
    assert judged.advice == (
        "use inductor in inference, backend='aot_eager' in training; not in training: "
        "Inductor's Metal backend does not implement sinh"
    )


def test_a_setting_that_fails_leaves_the_usual_one(lists: OpLists) -> None:
    dynamic = metal(graph(failures=(SINH,)))
    variant = msgspec.structs.replace(dynamic.variant, dynamic=True)
    dynamic = msgspec.structs.replace(dynamic, variant=variant)
    judged = judged_report(lists, metal(graph(kernel())), dynamic)
    assert judged.advice.startswith("use inductor with float32; not with dynamic: Inductor's Metal")
    assert exit_code(judged) == 0


@pytest.mark.parametrize(("torch", "outcome"), [("2.7", "no backend"), ("2.8", "works")])
def test_aotinductor_is_there_from_the_release_with_its_wrapper_on(torch: str, outcome: str, lists: OpLists) -> None:
    ahead = metal(graph(kernel()))
    variant = msgspec.structs.replace(ahead.variant, backend="aotinductor")
    judged = judged_report(lists, msgspec.structs.replace(ahead, variant=variant), torch=torch)
    assert outcomes(judged) == [outcome]
    assert any("AOTInductor" in text for text in judged.not_checked)


def test_a_failure_of_ours_is_no_verdict(lists: OpLists) -> None:
    ours = CompileFailure(kind="harness", message="no mps", ours=True)
    judged = judged_report(lists, AOT, metal(graph(failures=(ours,))))
    assert outcomes(judged) == ["could not tell"]


def test_nothing_compiled_is_a_finding(lists: OpLists) -> None:
    nothing = TriedVariant(variant=Variant(backend="inductor", metal=True), outcome="nothing compiled")
    judged = judged_report(lists, nothing)
    assert judged.advice == "torch.compile does nothing for this program: no graph was compiled"


WELFORD = "c10::metal::threadgroup_welford_reduce(tmp_acc_0, 8)"


@pytest.mark.parametrize(("torch", "outcome", "code"), [("2.12", "wrong result", 1), ("2.13", "works", 0)])
def test_a_known_wrong_result_decides_row_advice_and_exit_code(
    torch: str, outcome: str, code: int, lists: OpLists
) -> None:
    judged = judged_report(lists, AOT, metal(graph(kernel(source=WELFORD))), torch=torch)
    assert outcomes(judged) == [outcome]
    assert judged.advice.startswith("use backend='aot_eager': welford" if code else "use inductor")
    assert exit_code(judged) == code


def test_each_run_must_work_in_some_dtype_and_in_each_that_is_named(lists: OpLists) -> None:
    half = metal(graph(failures=(SINH,)), dtype="float16")
    judged = judged_report(lists, metal(graph(kernel())), half)
    assert (exit_code(judged), exit_code(judged, each_dtype=True)) == (0, 1)
    trained = msgspec.structs.replace(half, variant=msgspec.structs.replace(half.variant, training=True))
    assert exit_code(judged_report(lists, metal(graph(kernel())), trained)) == 1


def test_what_cannot_be_told_is_no_failure(lists: OpLists) -> None:
    ours = CompileFailure(kind="harness", message="no mps", ours=True)
    assert exit_code(judged_report(lists, metal(graph(failures=(ours,))))) == 3


def test_a_variant_that_takes_too_long_is_no_finding(lists: OpLists) -> None:
    late = msgspec.structs.replace(
        metal(graph(kernel()), dtype="float16"),
        outcome="too long",
        failure=CompileFailure(kind="timeout", message="the process was not done after 120 s"),
    )
    judged = judged_report(lists, metal(graph(kernel())), late)
    assert judged.advice.startswith("use inductor with float32; not known with float16: the process")
    assert exit_code(judged_report(lists, late)) == 3


def test_a_failure_of_the_targets_own_backend_stands(lists: OpLists) -> None:
    compiled = CompiledVariants(
        model="m",
        installed_torch="2.13.0",
        metal_backend="2.15.0",
        device="cpu",
        tried=(metal(graph(failures=(SINH,))),),
    )
    target = Target(torch=Version(2, 15), macos=Version(15))
    assert outcomes(report(compiled, target, lists, "")) == ["fails"]


def test_a_portable_backend_is_judged_by_its_audit(lists: OpLists) -> None:
    compiled = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=(EAGER, AOT))
    target = Target(torch=Version(2, 13), macos=Version(15))
    assert eager_runs([EAGER, AOT]) == (("float32", False),)
    why = CaptureError("no such input")
    judged = report(compiled, target, lists, "", eager={("float32", False): why})
    assert [tried.outcome for tried in judged.compiled.tried] == ["could not tell"] * 2
    assert "no such input" in judged.failures[0].message


@pytest.mark.parametrize("variant", [EAGER, metal()])
def test_a_process_that_ends_without_torch_compile_too_is_no_failure_of_the_compiler(
    lists: OpLists, variant: TriedVariant
) -> None:
    died = CompileFailure(kind="died", message="the process exited with code 0")
    variant = msgspec.structs.replace(variant, outcome="died", failure=died)
    compiled = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=(variant,))
    target = Target(torch=Version(2, 13), macos=Version(15))
    assert eager_runs([variant]) == (("float32", False),)
    why = CaptureError("the process that ran the model exited with code 0")
    judged = report(compiled, target, lists, "", eager={("float32", False): why})
    assert [tried.outcome for tried in judged.compiled.tried] == ["could not tell"]
    assert exit_code(judged) == 3
    judged = report(compiled, target, lists, "", eager={})
    assert [tried.outcome for tried in judged.compiled.tried] == ["died"]
    assert exit_code(judged) == 1


def test_what_is_perhaps_wrong_is_not_told_and_nothing_is_advised_with_certainty(lists: OpLists) -> None:
    def noted(note: str) -> MetalKernel:
        return msgspec.structs.replace(kernel(), notes=(note,))

    doubtful = noted("a masked index may leave its s0 elements outside of the mask: s0")
    judged = judged_report(lists, AOT, metal(graph(doubtful)), torch="2.10")
    assert outcomes(judged) == ["could not tell"]
    assert exit_code(judged) == 3
    assert judged.advice.startswith("could not tell whether inductor is right with float32: ")
    assert judged.advice.endswith("on a Mac; backend='aot_eager' is not affected")
    certain = noted("a masked index leaves its 16 elements outside of the mask: x0 is 62")
    assert outcomes(judged_report(lists, metal(graph(certain)), torch="2.10")) == ["wrong result"]
    assert outcomes(judged_report(lists, metal(graph(certain)), torch="2.11")) == ["works"]


def test_operators_that_the_target_decomposes_otherwise_are_named_unless_it_did_it(lists: OpLists) -> None:
    compiled = CompiledVariants(
        model="m", installed_torch="2.13.0", metal_backend="2.10.0", device="cpu", tried=(metal(graph(kernel())),)
    )
    target = Target(torch=Version(2, 10), macos=Version(15))
    judged = report(compiled, target, lists, "", differing=["gelu", "mean"])
    assert judged.differs.startswith("torch 2.10 decomposes or lowers gelu, mean differently from")
    assert "gelu, mean differ in their own rules" in judged.not_checked[-1]
    exact = msgspec.structs.replace(compiled, installed_torch="2.10.0")
    assert report(exact, target, lists, "", differing=["gelu"]).differs == ""


def test_where_only_inductor_was_tried_the_next_command_tries_another(lists: OpLists) -> None:
    failing = metal(graph(failures=(SINH,)))
    compiled = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=(failing,))
    target = Target(torch=Version(2, 13), macos=Version(15))
    judged = report(compiled, target, lists, "", command="opcheck compile m")
    assert judged.advice.startswith("do not use inductor with float32: Inductor's Metal backend does")
    assert judged.next == "opcheck compile m --backend aot_eager"
    compiled = msgspec.structs.replace(compiled, tried=(failing, AOT))
    judged = report(compiled, target, lists, "", command="opcheck compile m")
    assert (judged.advice[:24], judged.next) == ("use backend='aot_eager':", "")


def test_where_inductor_works_in_inference_alone_the_next_command_tries_another(lists: OpLists) -> None:
    failing = metal(graph(failures=(SINH,)))
    failing = msgspec.structs.replace(failing, variant=msgspec.structs.replace(failing.variant, training=True))
    tried = (metal(graph(kernel())), failing)
    compiled = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=tried)
    judged = report(compiled, Target(torch=Version(2, 13), macos=Version(15)), lists, "", command="opcheck compile m")
    assert judged.next == "opcheck compile m --backend aot_eager"


def test_where_only_inductor_was_tried_and_it_works_nothing_follows(lists: OpLists) -> None:
    compiled = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=(metal(graph(kernel())),))
    target = Target(torch=Version(2, 13), macos=Version(15))
    assert report(compiled, target, lists, "", command="opcheck compile m").next == ""


def test_a_program_that_raises_by_itself_tells_nothing_of_the_target(lists: OpLists) -> None:
    message = "without torch.compile, too, in this dtype and on this machine: ValueError: no"
    raised = CompileFailure(kind="model", message=message)
    tried = (
        msgspec.structs.replace(attempt, outcome="could not tell", failure=raised)
        for attempt in (EAGER, AOT, metal(graph(kernel())))
    )
    judged = judged_report(lists, *tried)
    assert judged.advice == f"could not tell: the program raises {message}"
    assert exit_code(judged) == 3


def test_a_backend_that_works_in_one_run_is_advised_for_it(lists: OpLists) -> None:
    def trained(attempt: TriedVariant) -> TriedVariant:
        variant = msgspec.structs.replace(attempt.variant, training=True)
        return msgspec.structs.replace(attempt, variant=variant)

    failing = metal(graph(failures=(SINH,)))
    raised = CompileFailure(kind="compile", message="no backward")
    broken = msgspec.structs.replace(trained(AOT), outcome="fails", failure=raised)
    judged = judged_report(lists, AOT, failing, broken, trained(failing))
    assert judged.advice.startswith("use backend='aot_eager' in inference: ")


def test_a_program_that_needs_the_fallback_without_torch_compile_says_so(lists: OpLists) -> None:
    needs = CompileFailure(kind="audit", message="on mps, with or without torch.compile: not implemented")
    aot = msgspec.structs.replace(AOT, outcome="needs fallback", failure=needs)
    judged = judged_report(lists, aot, metal(graph(failures=(SINH,))))
    assert judged.advice.startswith("only with PYTORCH_ENABLE_MPS_FALLBACK=1: on mps, with or without")


def test_a_known_defect_names_the_release_that_mended_it(lists: OpLists) -> None:
    judged = judged_report(lists, AOT, metal(graph(kernel(source=WELFORD))), torch="2.12")
    assert [advisory.mended for advisory in judged.advisories] == ["2.13"]


def test_a_difference_says_how_large_it_is(lists: OpLists) -> None:
    gradients = ResultDifference(compiled=0.5, eager=1e-7, allowed=1e-6)
    aot = msgspec.structs.replace(AOT, outcome="differs", gradients=gradients)
    (group,) = judged_report(lists, aot, metal(graph(kernel()))).failures
    assert "the gradients differ from the eager program's by 0.5 of their size" in group.message
