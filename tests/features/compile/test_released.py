"""The Metal backend of another release: where it comes from, and what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.registrations import OpLists
from opcheck.data.wheels import archive, inductor
from opcheck.features.compile import compile_process
from opcheck.tracing.torch_private import compilation
from opcheck.worker.environments import distribution_version


def test_the_installed_release_needs_no_other(lists: OpLists) -> None:
    line = ".".join(distribution_version("torch").split(".")[:2])
    assert compile_process.backend(lists.release(line)) == compile_process.Backend()
    assert compile_process.backend(lists.release("2.6")) == compile_process.Backend()


def test_a_wheel_that_cannot_be_had_is_a_reason(lists: OpLists, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any) -> Path:
        raise OpListError("no wheel", context="offline")

    monkeypatch.setattr(inductor, "unpack_inductor", no_network)
    assert compile_process.backend(lists.release("2.8")).problem == "no wheel: offline"


def test_a_wheel_with_another_digest_is_refused(
    lists: OpLists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = lists.release("2.9")
    wheel = tmp_path / release.wheel
    wheel.write_bytes(b"another")
    monkeypatch.setattr(archive, "obtain", lambda *_: wheel)
    with pytest.raises(OpListError, match="differs from the released wheel"):
        inductor.unpack_inductor(release, tmp_path / "wheels")


def test_moved_interfaces_are_filled_in() -> None:
    called = []

    class Overrides:
        @staticmethod
        def index_expr(expr: str, dtype: str) -> str:
            return f"{expr} as {dtype}"

    class Kernel:
        compute = "compute"
        cse = SimpleNamespace(generate=lambda _, text, dtype: (text, dtype is not None))

        def call_kernel(self, name: str, node: Any = None) -> None:
            called.append((name, node))

        def reduction(self, _dtype: str, _src: str, kind: str, value: str) -> Any:
            return (f"{value}.x", 8) if kind == "welford_reduce" else value

    compilation._adapt(Overrides, Kernel)
    kernel: Any = Kernel()
    assert Overrides.value_expr("x0", "long") == "x0 as long"  # type: ignore[attr-defined]  # added by _adapt
    kernel.call_kernel("k", deallocate_ws=True)
    assert called == [("k", None)]
    assert kernel.reduction("f", "f", "sum", "tmp0") == "tmp0"
    assert kernel.reduction("f", "f", "welford_reduce", "tmp0") == (("tmp0.x", True), ("8", True))


PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import torch
from opcheck.features.compile.compile_process import backend
from opcheck.data.registrations import load
from opcheck.data.wheels.inductor import BACKEND
from opcheck.tracing.torch_private import compilation
from opcheck.worker.environments import distribution_version
own = backend(load().release(sys.argv[1]))
assert not own.problem, own.problem
if own.folder:
    compilation.use_metal_backend(Path(own.folder) / BACKEND)
from opcheck.features.compile.child.inductor_metal import SideCompiler
from opcheck.features.compile.check.metal_check import lint
side = SideCompiler()
def program(x, y):
    return torch.nn.functional.layer_norm(x, (600,)), (x[:, None, :8] - y[None]).sum()
with torch.no_grad():
    torch.compile(program, backend=side)(torch.randn(40, 600), torch.randn(48, 8))
(graph,) = side.graphs
failures = [failure.message for failure in (*graph.failures, *lint(graph))]
print(json.dumps([failures, [kernel.source for kernel in graph.kernels]]))
"""


@pytest.mark.wheel
@pytest.mark.parametrize("line", ["2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.14", "2.15"])
def test_each_release_writes_its_own_kernels(line: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, line], capture_output=True, text=True, check=True)
    failures, sources = json.loads(done.stdout.splitlines()[-1])
    text = "\n".join(sources)
    assert failures == []
    assert ("mps_lib_0(" in text) == (line in {"2.7", "2.8", "2.9", "2.10", "2.11"})
    assert ("welford_reduce(" in text) == (line not in {"2.14", "2.15"})
    assert ("precise::rsqrt" in text) == (line not in {"2.7", "2.8", "2.9", "2.10"})
