"""The process that runs the models of a sweep, where it cannot copy itself."""

from __future__ import annotations

import pytest

from opcheck.features.sweep import server
from opcheck.features.sweep.sweep_records import Control, Model, PlainRun
from opcheck.worker import platform


def test_a_process_that_is_not_copied_announces_the_time_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a model that hangs takes the time of all imports, too."""
    stages: list[float] = []

    def say(text: str, *, seconds: float = 0.0) -> None:
        stages.append(seconds)

    monkeypatch.setattr(platform, "CAN_FORK", False)
    monkeypatch.setattr(server, "_reply", lambda _request: PlainRun(text="ran"))
    monkeypatch.setattr(server, "_import_for", lambda *_: None)
    model = Model(spec="m.py:net")
    request = Control(model=model, config={}, mode="inference", stage="run", memory=1.0)
    assert server.answer(request, say) == PlainRun(text="ran")
    assert stages == [server._CONTROL + server._GRACE]
