"""A gate whose captures are made, not run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from opcheck.cli import invoke
from opcheck.common.errors import ModelLoadError, OpcheckError
from opcheck.common.versions import Target
from opcheck.features.gate.assemble import Job, JobResult
from opcheck.features.gate.gate_records import Failed
from opcheck.model.records import OpCall, Report, ReportTarget
from tests.command_line import Result as Printed
from tests.made import call, make_report

#: What the models of the made project do; the names are what tests/features/gate/conftest.py:project configures.
CALLS: dict[str, tuple[OpCall, ...]] = {
    "native": (call("aten::mm"),),
    "fallback": (call("aten::mm"), call("aten::embedding_renorm_", 7)),
    "raises": (call("aten::stub", 9),),
    "unknown": (call("mylib::op", 11),),
}
BROKEN = ModelLoadError("no such file", context="model broken.py:Net", hint="look for it")


def made(calls: tuple[OpCall, ...], target: Target, **others: object) -> Report:
    about = ReportTarget(torch=str(target.torch), macos=str(target.macos), cpu_fallback=target.cpu_fallback)
    report = make_report(*calls, cpu_fallback=target.cpu_fallback, **others)  # type: ignore[arg-type]
    return msgspec.structs.replace(report, target=about, graph=())


class Project:
    """A configured project; ``calls`` is what its models do, ``broken`` those that cannot be built."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.calls = dict(CALLS)
        self.broken: dict[str, OpcheckError | BaseException] = {}
        self.jobs: list[Job] = []
        self._capsys = capsys

    def configure(self, *models: str, more: str = "", fail_on: str = "fallback") -> None:
        tables = "".join(f'[[tool.opcheck.models]]\nname = "{name}"\nmodel = "{name}.py:Net"\n' for name in models)
        targets = '[tool.opcheck.targets]\ntorch = ["2.12", ">=2.14"]\nmacos = ["15", "26"]\n'
        text = f'[tool.opcheck]\nfail-on = "{fail_on}"\n{tables}{targets}{more}\n'
        Path("pyproject.toml").write_text(text)

    def work(self, job: Job, say: Callable[[str], None]) -> JobResult:
        self.jobs.append(job)
        say("building the model")
        failure = self.broken.get(job.name)
        if isinstance(failure, OpcheckError):
            about = Failed(message=failure.message, context=failure.context, hint=failure.hint)
            return JobResult(failed=about)
        if failure is not None:
            raise failure
        calls = self.calls[job.name]
        return JobResult(reports=tuple(made(calls, target) for target in job.targets))

    def __call__(self, *args: str) -> Printed:
        code = invoke(["gate", "--jobs", "1", "--no-cache", *args])
        return Printed(code, *self._capsys.readouterr())


@pytest.fixture
def project(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """A project in an empty directory, with a source that the findings point at."""
    result = Project(capsys)
    monkeypatch.setattr("opcheck.features.gate.assemble.work", result.work)
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("".join(f"y = f{line}(x)\n" for line in range(1, 20)))
    return result
