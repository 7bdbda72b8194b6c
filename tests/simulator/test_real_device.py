"""On a Mac the installed torch computes on the GPU: nothing that a simulation runs reaches it.

Here the Mac's build is a child process with tests/mac_build, whose kernels and bindings note that they were reached.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mac_build import mac_build

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mac-build")
    mac_build.prepare(folder)
    return folder


def on_a_mac(build: Path, *command: str, text: str = "") -> tuple[str, list[str]]:
    """What a process with the Mac's build prints, and what of the device it reached."""
    log = build / "reached.log"
    log.write_text("")
    environment = {
        **os.environ,
        mac_build.VARIABLE: str(build),
        "PYTHONPATH": os.pathsep.join((str(Path(mac_build.__file__).parent), str(ROOT))),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *command],
        input=text,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=build,
    )
    return done.stdout + done.stderr, log.read_text().splitlines()


IN_ONE_PROCESS = """
import threading, warnings
import torch
from opcheck import emulate
from opcheck.simulator.real_device import hidden, out_of_reach

warnings.simplefilter("error")


def outcome(work):
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


tables = lambda: {n: torch._C._dispatch_dump_table(n) for n in torch._C._dispatch_get_all_op_names()}
before = tables()
with out_of_reach():
    assert tables() != before
    print("covered:", outcome(lambda: torch.empty(2, device="mps")))
    print("sparse:", outcome(lambda: torch._C._mps_deviceSynchronize()))
    print("accelerator:", outcome(torch.accelerator.synchronize))
    assert torch.backends.mps.is_available()
    with hidden():
        print("hidden:", torch.backends.mps.is_available(), torch.accelerator.current_accelerator())
    assert torch.backends.mps.is_available()
assert tables() == before

with emulate(torch="2.13", macos="15"):
    x = torch.ones(2, device="mps")
    y = x.to_sparse()
    net = torch.nn.Linear(2, 2).to("mps")
    kept = (x + 1).cpu()
print("kept:", kept.tolist(), x.shape)
for work in (lambda: x.add_(1), lambda: repr(x), lambda: net(torch.ones(2)), lambda: y.coalesce()):
    print("after:", outcome(work))
"""


def test_in_one_process(build: Path) -> None:
    printed, reached = on_a_mac(build, "-", text=IN_ONE_PROCESS)
    assert reached == []
    lines = printed.splitlines()
    refused = [line for line in lines if "was called for mps outside of the simulation" in line]
    assert [line.partition(":")[0] for line in refused] == ["covered", "sparse", "accelerator"]
    assert "hidden: False None" in lines
    assert "kept: [2.0, 2.0] torch.Size([2])" in lines
    after = [line for line in lines if line.startswith("after")]
    assert len(after) == 4
    # C++ refuses some by itself: there is no memory to read.
    assert all("Error: " in line for line in after)
    assert "on a tensor of a simulated Mac after the simulation" in after[1]


def test_the_stand_ins_are_reached_without_it(build: Path) -> None:
    """Else this file could not fail."""
    _, reached = on_a_mac(build, "-", text="import torch\ntorch.ones(2, device='mps')")
    assert [line.partition(" ")[0] for line in reached] == ["aten::empty.memory_format"]
