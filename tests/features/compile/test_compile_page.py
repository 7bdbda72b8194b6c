"""The page of opcheck compile, word for word."""

from __future__ import annotations

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.features.compile.compile_records import (
    CompiledVariants,
    CompileFailure,
    Extern,
    FusedNode,
    GraphBreak,
    MetalKernel,
    Recompile,
    SideGraph,
    TriedVariant,
    Variant,
)
from opcheck.features.compile.page import document
from opcheck.features.compile.target_outcomes import report
from opcheck.model.records import SourceLocation
from opcheck.render.text import as_text

LINE = SourceLocation(file="a.py", line=3, function="f", text="return x.sinh()")

PAGE = """\
a.py:net compiled for torch 2.12, macOS 15.0

use backend='eager': welford-barrier: A variance (LayerNorm, BatchNorm in training, var) can be
silently wrong: threads read the accumulators before all are written.

Variants

  variant             run        graphs  float32       float16
  eager               inference  2       works         -
  inductor for Metal  inference  1       wrong result  fails

Failures

  compiled code calls aten::_linalg_eigh eagerly, which raises without PYTORCH_ENABLE_MPS_FALLBACK=1
    on mps at module body.0 -- inductor for Metal (inference, float32)
  Inductor's Metal backend does not implement sinh [aten::sinh] at a.py:3: return x.sinh()
    (missing-math) -- inductor for Metal (inference, float16) --
    https://github.com/pytorch/pytorch/pull/197403

Known defects of this release

  welford-barrier (wrong result; fixed in torch 2.13): A variance (LayerNorm, BatchNorm in training,
    var) can be silently wrong: threads read the accumulators before all are written; 1 kernel of
    this kind, the first at a.py:3 -- inductor for Metal (inference, float32) --
    https://github.com/pytorch/pytorch/issues/191976 https://github.com/pytorch/pytorch/pull/184328

Graph breaks

  GB0170 Data-dependent branching at a.py:3: return x.sinh()

Compiled again

  tensor 'x' size mismatch at index 0. expected 4, actual 5
"""

TIMES = """
Time to compile

  inductor for Metal (float32, inference): 1.5 s, with 0.2 s for Metal
"""

END = """
Metal

1 kernel over all variants; 1 operator called eagerly

  operator            on the target  line
  aten::_linalg_eigh  fallback env   body.0

Not checked

  Metal compiled nothing and nothing ran on a Mac: the kernels are what Inductor writes
  other inputs, and the recompilations that their shapes cause
  branches on the device in the program and in torch: the graphs were traced on the CPU
  the Inductor of torch 2.12: that of torch 2.13.0, which is installed here, wrote the kernels
"""


def _compiled() -> CompiledVariants:
    kernel = MetalKernel(
        name="generated_kernel_0",
        source="threadgroup_welford_reduce(tmp, 8)",
        nodes=(FusedNode(name="var", op="aten::var", location=LINE),),
    )
    sinh = CompileFailure(
        kind="operator", message="Inductor's Metal backend does not implement sinh", op="aten::sinh", location=LINE
    )
    extern = Extern(op="aten::_linalg_eigh", dtypes=("float32",), module="body.0")
    good = SideGraph(phase="inference", nodes=2, kernels=(kernel,), externs=(extern,), seconds=0.2)
    metal = Variant(backend="inductor", metal=True)
    return CompiledVariants(
        model="a.py:net",
        installed_torch="2.13.0",
        device="cpu",
        tried=(
            TriedVariant(
                variant=Variant(backend="eager"),
                outcome="works",
                graphs=2,
                breaks=(GraphBreak(reason="Data-dependent branching", id="GB0170", location=LINE),),
                recompiles=(Recompile(guard="tensor 'x' size mismatch at index 0. expected 4, actual 5"),),
            ),
            TriedVariant(variant=metal, outcome="works", graphs=1, seconds=1.5, side=(good,)),
            TriedVariant(
                variant=Variant(backend="inductor", metal=True, dtype="float16"),
                outcome="fails",
                graphs=1,
                side=(SideGraph(phase="inference", nodes=1, failures=(sinh,)),),
            ),
        ),
    )


def test_the_page(lists: OpLists) -> None:
    target = Target(torch=Version(2, 12), macos=Version(15))
    result = report(_compiled(), target, lists, "opcheck 0")
    assert as_text(document(result)) == PAGE + TIMES + END
    assert as_text(document(result, times=False)) == PAGE + END


def test_the_terminal_shows_what_does_not_work_and_a_line_for_each_section(lists: OpLists) -> None:
    target = Target(torch=Version(2, 12), macos=Version(15))
    result = report(_compiled(), target, lists, "opcheck 0")
    lines = as_text(document(result, short=True)).splitlines()
    assert len(lines) <= 15
    names = [line.split("  ")[1] for line in lines[-7:]]
    assert names == [
        "Variants",
        "Failures",
        "Known defects of this release",
        "Graph breaks",
        "Compiled again",
        "Metal",
        "Not checked",
    ]
    assert "  inductor for Metal  inference  1       wrong result  fails" in lines
    assert not [line for line in lines if line.startswith("  eager")]
