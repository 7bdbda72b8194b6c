"""What needs no compiler: records, plans, shader lints."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.compiler import plan
from opcheck.compiler.lint import lint
from opcheck.compiler.records import Compiled, Failure, FusedNode, Kernel, SideGraph, Tried, Variant
from opcheck.model.records import SourceLocation

HERE = SourceLocation(file="a.py", line=3, function="f", text="return x")


def _kernel(name: str, *, buffers: int = 1, threadgroup: int = 0) -> Kernel:
    node = FusedNode(name="sin", op="aten::sin", location=HERE)
    return Kernel(
        name=name, source="", nodes=(node,), buffers=buffers, threadgroup_bytes=threadgroup
    )


def test_records_travel() -> None:
    graph = SideGraph(phase="forward", nodes=2, kernels=(_kernel("k"),), seconds=0.5)
    tried = Tried(
        variant=Variant(backend="inductor", metal=True),
        outcome="fails",
        failure=Failure(kind="dtype", message="no", location=HERE, module="body.0"),
        side=(graph,),
    )
    whole = Compiled(model="m", installed_torch="2.13.0", device="cpu", tried=(tried,))
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Compiled) == whole


@pytest.mark.parametrize(
    ("kernels", "said"),
    [
        ((_kernel("a", buffers=31), _kernel("b", threadgroup=32 * 1024)), []),
        ((_kernel("a", buffers=32),), ["a takes 32 buffers"]),
        ((_kernel("a", threadgroup=32 * 1024 + 1),), ["a declares 32,769 bytes"]),
        ((_kernel("a"), _kernel("a")), ["2 kernels of one library are called a"]),
    ],
)
def test_what_metal_refuses(kernels: tuple[Kernel, ...], said: list[str]) -> None:
    found = list(lint(SideGraph(phase="inference", nodes=1, kernels=kernels)))
    assert [failure.location for failure in found] == [HERE] * len(said)
    assert [failure.kind for failure in found] == ["shader"] * len(said)
    for failure, text in zip(found, said, strict=True):
        assert failure.message.startswith(text)


def test_the_usual_plan_tries_metal_in_every_dtype_and_run() -> None:
    variants = plan.default(plan.RUNS, plan.DTYPES)
    metal = [(one.dtype, one.training) for one in variants if one.metal]
    assert metal == [(dtype, training) for training in (False, True) for dtype in plan.DTYPES]
    assert {one.backend for one in variants} == {*plan.BACKENDS}
    assert len(set(variants)) == len(variants)
    stages = [one for one in variants if not one.metal]
    assert {one.dtype for one in stages} == {plan.DTYPES[0]}


def test_every_plan_holds_the_usual_one() -> None:
    every = plan.every(plan.RUNS, plan.DTYPES)
    assert set(plan.default(plan.RUNS, plan.DTYPES)) <= set(every)
    assert {one.mode for one in every} == {*plan.MODES}


def test_named_backends_are_taken_as_they_are() -> None:
    found = plan.named(("mps",), ("inference",), ("float16",))
    assert found == (Variant(backend="mps", dtype="float16"),)


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
