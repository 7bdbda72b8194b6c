"""Exceptions of code that a program comes to on MPS alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opcheck.capture.child import endings
from opcheck.capture.child.endings import condition_before

ALONE = {
    "inside": 'if x.device.type == "mps":\n    boom()',
    "turned round": 'if "mps" == x.device.type and x:\n    boom()',
    "a helper": "if x.is_mps:\n    helper()",
    "after a return": 'if x.device.type != "mps" or not x:\n    return None\nboom()',
    "the other way": 'if not x.device.type == "mps":\n    return None\nelse:\n    boom()',
    "in a loop": 'for _ in range(2):\n    if x.device.type != "mps":\n        continue\n    with x:\n        boom()',
    "a handler": 'try:\n    x.nothing\nexcept AttributeError:\n    if str(x.device.type).startswith("mps"):\n        boom()',
}
EVERYWHERE = {
    "no condition": "boom()",
    "another device": 'if x.device.type != "cuda":\n    boom()',
    "after the branch": 'if x.device.type == "mps":\n    x = x\nboom()',
    "or another": 'if x.device.type == "mps" or x:\n    boom()',
    "the return of mps": 'if x.device.type == "mps":\n    x = x\nelse:\n    return None\nboom()',
}


class Value(SimpleNamespace):
    """Stands for a tensor."""

    is_mps = True

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def raised(body: str, folder: Path) -> BaseException:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    file = folder / "program.py"
    file.write_text(
        f"def boom():\n    raise AttributeError('no')\n\ndef helper():\n    boom()\n\ndef run(x):\n{lines}",
        encoding="utf-8",
    )
    names: dict[str, Any] = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)  # noqa: S102 - our own text
    with pytest.raises(AttributeError) as error:
        names["run"](Value(device=SimpleNamespace(type="mps")))
    return error.value


@pytest.mark.parametrize("name", ALONE)
def test_code_that_mps_alone_comes_to_is_named_by_its_condition(name: str, tmp_path: Path) -> None:
    error = raised(ALONE[name], tmp_path)
    assert "mps" in condition_before(error)
    kind = endings.kind_of(error)
    assert kind == "mps_branch"
    problem = endings.problem_of(error, kind, None)
    assert "AttributeError: no" in problem.message
    assert "mps" in problem.answered


@pytest.mark.parametrize("name", EVERYWHERE)
def test_code_of_other_devices_is_the_programs_own(name: str, tmp_path: Path) -> None:
    error = raised(EVERYWHERE[name], tmp_path)
    assert not condition_before(error)
    assert endings.kind_of(error) == ""
