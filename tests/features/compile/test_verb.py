"""The verb compile: what it asks for, what it writes, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.features.compile.compile_process import Backend
from opcheck.features.compile.compile_records import (
    CompiledVariants,
    CompilePlan,
    FusedNode,
    MetalKernel,
    SideGraph,
    TriedVariant,
    Variant,
)
from opcheck.model.records import SourceLocation
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay
from tests.command_line import CommandLine
from tests.made import make_target

NODE = FusedNode(
    name="sin", op="aten::sin", location=SourceLocation(file="a.py", line=3, function="f", text="return x.sin()")
)
KERNEL = MetalKernel(name="generated_kernel_0", source="kernel void f() {}\n", headers=("utils",), nodes=(NODE,))


class Child:
    """Stands for the process that compiles; every Metal variant comes to ``outcome``."""

    def __init__(self) -> None:
        self.outcome = "works"
        self.request: CaptureRequest | None = None
        self.plan = CompilePlan(variants=())

    def __call__(
        self,
        request: CaptureRequest,
        plan: CompilePlan,
        *,
        display: ProcessDisplay = NO_DISPLAY,  # noqa: ARG002  (of compile_variants)
    ) -> CompiledVariants:
        self.request, self.plan = request, plan
        tried = [
            TriedVariant(
                variant=variant,
                outcome=self.outcome if variant.metal else "works",
                side=(SideGraph(phase="inference", nodes=1, kernels=(KERNEL,)),) if variant.metal else (),
            )
            for variant in plan.variants
        ]
        return CompiledVariants(model=request.model, installed_torch="2.13.0", device=plan.device, tried=tuple(tried))


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    made = Child()
    monkeypatch.setattr("opcheck.features.compile.compile_process.compile_variants", made)
    monkeypatch.setattr("opcheck.features.compile.compile_process.backend", lambda *_: Backend())
    monkeypatch.setattr("opcheck.features.compile.target_outcomes.audits", lambda *_, **__: {})
    return made


@pytest.mark.parametrize(("outcome", "code"), [("works", 0), ("nothing compiled", 1), ("could not tell", 3)])
def test_the_exit_code_is_of_metal(outcome: str, code: int, opcheck: CommandLine, child: Child) -> None:
    child.outcome = outcome
    assert opcheck("compile", "a.py:f").code == code


def test_the_flags_make_the_plan(opcheck: CommandLine, child: Child) -> None:
    opcheck(
        *("compile", "a.py:f", "--backend", "eager", "--backend", "mine", "--dtype", "float16"),
        *("--mode", "train", "--device", "cuda", "--timeout", "7", "--torch", "2.12"),
        *("--macos", "14", "--input", "2x3", "--config", "layers=2"),
    )
    assert child.plan == CompilePlan(
        variants=tuple(Variant(backend=name, dtype="float16", training=True) for name in ("eager", "mine")),
        device="cuda",
        seconds=7.0,
    )
    assert child.request == CaptureRequest(
        model="a.py:f", target=make_target("2.12", "14.0"), inputs=("2x3",), config={"layers": 2}
    )


def test_the_usual_variants_are_those_for_metal_and_the_page_says_what_was_left(
    opcheck: CommandLine, child: Child
) -> None:
    lines = opcheck("compile", "a.py:f", "--dtype", "float16").out.splitlines()
    assert [(str(v), v.run) for v in child.plan.variants] == [
        ("inductor for Metal", "inference"),
        ("inductor for Metal", "training"),
    ]
    (rest,) = (line for line in lines if line.startswith("  Not tried "))
    assert lines[-1].startswith("  next ")
    assert lines[-1].endswith(" --dtype=float16 --all")
    every = opcheck("compile", "a.py:f", "--dtype", "float16", "--all").out
    assert f" {len(child.plan.variants) - 2} variants (--all" in rest
    assert "Not tried" not in every
    assert "Not tried" not in opcheck("compile", "a.py:f", "--backend", "inductor").out


def test_every_variant_is_more_than_the_usual(opcheck: CommandLine, child: Child) -> None:
    opcheck("compile", "a.py:f")
    usual = len(child.plan.variants)
    opcheck("compile", "a.py:f", "--all")
    assert len(child.plan.variants) > 2 * usual


def test_metal_comes_first_and_inductor_for_this_machine_only_with_all(opcheck: CommandLine, child: Child) -> None:
    def inductors(*flags: str) -> list[bool]:
        opcheck("compile", "a.py:f", "--dtype", "float32", "--mode", "inference", *flags)
        return [variant.metal for variant in child.plan.variants if variant.backend == "inductor"]

    assert set(inductors()) == {True}
    assert child.plan.variants[0].metal
    assert inductors("--backend", "eager", "--backend", "inductor") == [True]
    assert child.plan.variants[0].metal
    metal = inductors("--all", "--backend", "inductor")
    assert set(metal) == {True, False}
    assert metal == sorted(metal, reverse=True)
    assert {variant.backend for variant in child.plan.variants} == {"inductor"}


def test_the_kernels_of_aotinductor_are_not_run(opcheck: CommandLine, child: Child) -> None:
    opcheck("compile", "a.py:f", "--run-metal", "--backend", "aotinductor", "--backend", "inductor")
    assert {v.backend: v.run_metal for v in child.plan.variants} == {"aotinductor": False, "inductor": True}


@pytest.mark.parametrize(("ended", "code"), [("SIGTERM", 143), ("Ctrl-C", 130), ("late", 3)])
def test_a_run_that_is_ended_prints_what_it_has(
    ended: str, code: int, opcheck: CommandLine, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "opcheck.features.compile.compile_process.compile_variants",
        lambda *args, **options: msgspec.structs.replace(child(*args, **options), ended=ended, lacking=2),
    )
    result = opcheck("compile", "a.py:f", "--backend", "inductor", "--backend", "aot_eager")
    assert result.code == code
    assert "inductor for Metal" in result.out
    # Nothing was audited for them.
    assert "could not tell" in result.out.partition("aot_eager")[2]
    assert f"2 variants: {ended} ended the run" in result.out


def test_nothing_is_compiled_for_metal_on_cuda(opcheck: CommandLine, child: Child) -> None:
    assert opcheck("compile", "a.py:f", "--device", "cuda").code == 0
    assert child.plan.variants
    assert not any(variant.metal for variant in child.plan.variants)


def test_json_is_nothing_but_json(opcheck: CommandLine, child: Child) -> None:
    result = opcheck("compile", "a.py:f", "-f", "json", "-q")
    outcome: dict[str, Any] = json.loads(result.out)
    assert (outcome["schema"], outcome["model"]) == ("opcheck-compile/1", "a.py:f")


def test_kernels_are_written_with_a_note_of_their_origin(opcheck: CommandLine, child: Child, tmp_path: Path) -> None:
    result = opcheck("compile", "a.py:f", "--dtype", "float32", "--mode", "inference", "--emit-metal", "metal")
    (file,) = (tmp_path / "metal").iterdir()
    assert file.name == "float32-inference-graph0-inference-000-generated_kernel_0.metal"
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[1] == "// sin = aten::sin  a.py:3: return x.sin()"
    assert lines[2] == "#include <c10/metal/utils.h>"
    assert lines[-1] == KERNEL.source.strip()
    assert "1 kernel written to metal" in result.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--timeout", "0"), "the timeout must be more than nothing"),
        (("--dtype", "float33"), "float33"),
        (("--device", "mps"), "mps"),
    ],
)
def test_a_wrong_flag_is_refused(arguments: tuple[str, ...], said: str, opcheck: CommandLine, child: Child) -> None:
    result = opcheck("compile", "a.py:f", *arguments)
    assert result.code == 2
    assert said in result.err


def test_a_backend_that_does_not_exist_is_answered(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def double(x):\n    return x * 2\n", encoding="utf-8")
    result = opcheck(
        *("compile", "model.py:double", "--input", "4x4", "-q", "-f", "json"),
        *("--backend", "mps", "--backend", "nonsense", "--backend", "eager"),
        *("--dtype", "float32", "--mode", "inference"),
    )
    assert (result.code, result.err) == (0, "")
    compiled = msgspec.convert(json.loads(result.out)["compiled"], CompiledVariants)
    mps, nonsense, eager = compiled.tried
    assert mps.failure is not None
    assert nonsense.failure is not None
    assert "inductor generates Metal there" in mps.failure.message
    assert "has no backend 'nonsense'; it has aot_eager," in nonsense.failure.message
    assert (mps.outcome, nonsense.outcome, eager.outcome) == (*["no such backend"] * 2, "works")


def test_no_input_is_three_lines(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def double(x):\n    return x * 2\n", encoding="utf-8")
    result = opcheck("compile", "model.py:double", "-q")
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 3
    assert "--input" in result.err
