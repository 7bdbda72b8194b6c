"""What the kernels are compiled to is gone when the answer is there, however the child ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError
from opcheck.compiler import parent
from opcheck.compiler.plan import CompileRequest, Plan


def test_the_folder_of_the_kernels_goes_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def dies(_function: str, _answer: Any, request: CompileRequest, *_: Any, **__: Any) -> NoReturn:
        seen.append(Path(request.plan.scratch))
        (seen[0] / "kernels.so").write_text("")
        raise CaptureError("died")

    monkeypatch.setattr(parent, "ask", dies)
    with pytest.raises(CaptureError):
        parent.compile_variants(
            CaptureRequest(model="m.py:M", torch="", macos=""), Plan(variants=())
        )
    assert not seen[0].exists()
