"""Write the sample reports of ``opcheck compile`` and their index.

    python scripts/refresh_compile.py [NAME ...]

Run from the top of the repository: the reports name files relative to it.  Times are left out, so that the same
versions of the libraries give the same pages.
"""

import os
import sys
from pathlib import Path

import msgspec
from tabulate import tabulate

from opcheck.capture.request import CaptureRequest
from opcheck.common.files import write_text
from opcheck.common.tool import TOOL
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.features.compile import compile_records as records
from opcheck.features.compile.compile_process import compile_variants
from opcheck.features.compile.page import document
from opcheck.features.compile.target_outcomes import report
from opcheck.model.records import Scalar
from opcheck.render import write
from scripts.pages import ROOT, page_text

REPORTS = ROOT / "reports" / "compile"
TORCH, MACOS = "2.13", "15.0"

#: name of the report -> the model, its configuration
MODELS = msgspec.yaml.decode(
    Path(__file__).with_name("compiled_models.yaml").read_bytes(),
    type=dict[str, tuple[str, dict[str, Scalar | list[object] | dict[str, object]]]],
)


def main(names: list[str]) -> None:
    """Write the reports of the named programs, or of all with the index."""
    os.chdir(ROOT)
    rows = []
    for name in names or MODELS:
        result = _compiled(name)
        print(f"{name}: {result.advice}", file=sys.stderr)
        rows.append(_row(name, result))
        page = write(result, document(result, times=False), "markdown")
        write_text(REPORTS / f"{name}.md", page)
    if not names:
        write_text(REPORTS / "README.md", _index(rows))


def _compiled(name: str) -> records.CompileReport:
    model, config = MODELS[name]
    target = Target(torch=Version.parse(TORCH), macos=Version.parse(MACOS))
    request = CaptureRequest(model=model, target=target, config=config)
    # CPU Inductor is left out: it tells nothing of a Mac, and its compiler's time is most of the whole.
    stages = [records.Variant(backend="eager"), records.Variant(backend="aot_eager")]
    metal = [msgspec.structs.replace(records.METAL, dtype=dtype) for dtype in records.DTYPES]
    training = [msgspec.structs.replace(variant, training=True) for variant in (stages[1], metal[0])]
    plan = records.CompilePlan(variants=(*stages, *metal, *training), seconds=600.0)
    compiled = compile_variants(request, plan)
    return report(compiled, target, load(), TOOL)


def _row(name: str, result: records.CompileReport) -> dict[str, object]:
    metal = [attempt for attempt in result.compiled.tried if attempt.variant.metal]
    outcomes = {
        f"{attempt.variant.dtype}{', training' if attempt.variant.training else ''}": attempt.outcome
        for attempt in metal
    }
    stages = [attempt for attempt in result.compiled.tried if not attempt.variant.metal]
    first = stages[0]
    return {
        "program": f"[{name}]({name}.md)",
        "graphs": first.graphs,
        "breaks": len(first.breaks),
        "aot_eager": stages[1].outcome,
        **outcomes,
        "kernels": result.kernels,
        "eager operators": len({extern.op for extern in result.externs}),
        "of these not native": len({extern.op for extern in result.externs if extern.status != "native"}),
    }


def _index(rows: list[dict[str, object]]) -> str:
    table = tabulate(rows, headers="keys", tablefmt="github")
    return page_text("compile", torch=TORCH, macos=MACOS, table=table)


if __name__ == "__main__":
    main(sys.argv[1:])
