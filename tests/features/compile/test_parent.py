"""What the kernels are compiled to is gone when the answer is there, however the child ended."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from opcheck.capture import parent
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError
from opcheck.features.compile import compile_process
from opcheck.features.compile.compile_records import (
    TRIED,
    CompiledVariants,
    CompilePlan,
    CompileRequest,
    TriedVariant,
    Variant,
)
from opcheck.worker import worker
from opcheck.worker.platform import SignalledError
from tests.made import make_target
from tests.worker.test_process import PATIENCE


def test_the_folder_of_the_kernels_goes_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def dies(_function: str, _answer: Any, request: CompileRequest, *_: Any, **__: Any) -> NoReturn:
        seen.append(Path(request.plan.scratch))
        (seen[0] / "kernels.so").write_text("")
        raise CaptureError("died")

    monkeypatch.setattr(compile_process, "ask", dies)
    with pytest.raises(CaptureError):
        compile_process.compile_variants(CaptureRequest(model="m.py:M", target=make_target()), CompilePlan(variants=()))
    assert not seen[0].exists()


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (KeyboardInterrupt(), "Ctrl-C"),
        (SignalledError(signal.SIGTERM), "SIGTERM"),
        (CaptureError("the model was still running after 7 s"), "the model was still running"),
    ],
)
def test_a_run_that_is_ended_keeps_what_it_has(
    error: BaseException, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = Variant(backend="eager")
    so_far = CompiledVariants(
        model="m", installed_torch="", device="cpu", tried=(TriedVariant(variant=variant, outcome="works"),)
    )

    def is_ended(_function: str, _answer: Any, request: CompileRequest, *_: Any, **__: Any) -> Any:
        (Path(request.plan.scratch) / TRIED).write_bytes(msgspec.json.encode(so_far))
        raise error

    monkeypatch.setattr(compile_process, "ask", is_ended)
    compiled = compile_process.compile_variants(
        CaptureRequest(model="m.py:M", target=make_target()), CompilePlan(variants=(variant,) * 3)
    )
    assert compiled.ended.startswith(ended)
    assert (compiled.tried, compiled.lacking) == (so_far.tried, 2)


def test_the_time_limit_bounds_loading_where_the_program_catches_every_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "GRACE", 1.0)
    monkeypatch.setattr(worker, "GRACE", 1.0)
    file = tmp_path / "loops.py"
    file.write_text("while True:\n  try:\n    while True: pass\n  except BaseException: pass\n", encoding="utf-8")
    request = CaptureRequest(model=f"{file}:Net", target=make_target())
    plan = CompilePlan(variants=(Variant(backend="eager"),), seconds=1.0)
    start = time.monotonic()
    with pytest.raises(
        CaptureError, match=r"the model was not (done|loaded) after 1 s|the process of every variant ended"
    ):
        compile_process.compile_variants(request, plan)
    assert time.monotonic() - start < PATIENCE / 2
