"""What needs no compiler: records, plans, shader lints."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.features.compile import compile_records
from opcheck.features.compile.check.metal_check import lint, undeclared_names
from opcheck.features.compile.compile_records import (
    CompiledVariants,
    CompileFailure,
    FusedNode,
    MetalKernel,
    SideGraph,
    TriedVariant,
    Variant,
)
from opcheck.model.records import SourceLocation

HERE = SourceLocation(file="a.py", line=3, function="f", text="return x")


def _kernel(name: str, *, buffers: int = 1, threadgroup: int = 0) -> MetalKernel:
    node = FusedNode(name="sin", op="aten::sin", location=HERE)
    return MetalKernel(name=name, source="", nodes=(node,), buffers=buffers, threadgroup_bytes=threadgroup)


def test_records_travel() -> None:
    graph = SideGraph(phase="forward", nodes=2, kernels=(_kernel("k"),), seconds=0.5)
    tried = TriedVariant(
        variant=Variant(backend="inductor", metal=True),
        outcome="fails",
        failure=CompileFailure(kind="dtype", message="no", location=HERE, module="body.0"),
        side=(graph,),
    )
    whole = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=(tried,))
    assert msgspec.json.decode(msgspec.json.encode(whole), type=CompiledVariants) == whole


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ((_kernel("a", buffers=31), _kernel("b", threadgroup=32 * 1024)), []),
        ((_kernel("a", buffers=32),), ["a takes 32 buffers"]),
        ((_kernel("a", threadgroup=32 * 1024 + 1),), ["a declares 32,769 bytes"]),
        ((_kernel("a"), _kernel("a")), ["2 kernels of one library are called a"]),
    ],
)
def test_what_metal_refuses(kernels: tuple[MetalKernel, ...], said: list[str]) -> None:
    result = list(lint(SideGraph(phase="inference", nodes=1, kernels=kernels)))
    assert [failure.location for failure in result] == [HERE] * len(said)
    assert [failure.kind for failure in result] == ["shader"] * len(said)
    for failure, text in zip(result, said, strict=True):
        assert failure.message.startswith(text)


LOOP = """\
    kernel void generated_kernel_0(
        device float* out_ptr0,
        uint xindex [[thread_position_in_grid]]
    ) {
        int x0 = xindex;
        for(auto r0_0_cnt = 0; r0_0_cnt < 4; ++r0_0_cnt) {
            int r0_0 = 4 * r0_index + r0_0_cnt;
            auto tmp0 = in_ptr0[r0_0 + x0];
        }
        out_ptr0[x0] = tmp1;
    }
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("auto tmp1 = x0;", []),
        ("auto tmp1 = tmp0;", [(10, "tmp0")]),
        ("auto tmp1 = in_ptr0[r0_0];", [(10, "r0_0")]),
        ("auto tmp1 = static_cast<int>(tmp1);", [(10, "tmp1")]),
        ("auto tmp2 = x0;", [(11, "tmp1")]),
    ],
)
def test_a_name_is_used_where_it_is_declared(line: str, found: list[tuple[int, str]]) -> None:
    source = LOOP.replace("        out_ptr0[x0]", f"        {line}\n        out_ptr0[x0]")
    assert list(undeclared_names(source)) == found


def test_the_usual_plan_tries_metal_in_every_dtype_and_run_and_nothing_else() -> None:
    variants = compile_records.default(compile_records.RUNS, compile_records.DTYPES)
    assert variants == tuple(
        Variant(backend="inductor", metal=True, dtype=dtype, training=training)
        for training in (False, True)
        for dtype in compile_records.DTYPES
    )


def test_on_another_device_inductor_writes_code_for_it() -> None:
    variants = compile_records.default(compile_records.RUNS, compile_records.DTYPES, metal=False)
    assert [v.backend for v in variants if v.training and not v.dynamic][-3:] == ["inductor"] * 3
    assert not any(variant.metal for variant in variants)


def test_aotinductor_compiles_inference_for_metal() -> None:
    (ahead,) = compile_records.variants_of_backends(("aotinductor",), compile_records.RUNS, ("float32",))
    assert (str(ahead), ahead.training) == ("AOTInductor for Metal", False)


def test_every_plan_holds_the_usual_one() -> None:
    every = compile_records.choose(compile_records.RUNS, compile_records.DTYPES, every_setting=True)
    assert set(compile_records.default(compile_records.RUNS, compile_records.DTYPES)) <= set(every)
    assert {item.mode for item in every} == {*compile_records.MODES}


def test_named_backends_are_taken_as_they_are_and_inductor_for_metal() -> None:
    result = compile_records.variants_of_backends(("mps", "inductor"), ("inference",), ("float16",))
    assert result == (Variant(backend="mps", dtype="float16"), Variant(backend="inductor", dtype="float16", metal=True))
    (here,) = compile_records.variants_of_backends(("inductor",), ("inference",), ("float16",), metal=False)
    assert here == Variant(backend="inductor", dtype="float16")


@pytest.mark.parametrize(
    ("variant", "text"),
    [
        (Variant(backend="eager"), "eager"),
        (Variant(backend="inductor", metal=True, dynamic=True), "inductor for Metal dynamic"),
        (
            Variant(backend="inductor", fullgraph=True, dynamic=False, mode="max-autotune"),
            "inductor for this machine fullgraph static mode=max-autotune",
        ),
    ],
)
def test_a_variant_in_words(variant: Variant, text: str) -> None:
    assert str(variant) == text
