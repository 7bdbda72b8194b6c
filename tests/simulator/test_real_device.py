"""On a Mac the installed torch computes on the GPU: nothing that a simulation runs reaches it.

Here the Mac's build is a child process with tests/mac_build, whose kernels and bindings note that they were reached.
"""

from __future__ import annotations

import json
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
        [sys.executable, *command], input=text, env=environment, capture_output=True, text=True, check=False, cwd=build
    )
    return done.stdout, log.read_text().splitlines()


IN_ONE_PROCESS = """
import threading, warnings
import torch
from opcheck import emulate
from opcheck.simulator.real_device import hide_device, out_of_reach

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
    with hide_device():
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


@pytest.mark.slow
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


MODELS = """
import torch
from torch import nn

device = "mps" if torch.backends.mps.is_available() else "cpu"


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.to(device)

    def forward(self, words):
        torch.mps.synchronize()
        return self.lstm(self.words(words.to(device)))[0].mean(1)


class Decomposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6, device=device))

    def forward(self, x):
        u, s, v = torch.linalg.svd(x @ self.weight)
        return (u * s).sum() + torch.special.entr(s).sum() + v.abs().sum()
"""
AUDIT = """
import sys
import msgspec
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.orchestrator import audit_targets

targets = [Target(torch=Version.parse(t), macos=Version.parse(m)) for t, m in (p.split("/") for p in sys.argv[3:])]
model, mode = sys.argv[1:3]
inputs, config = {
    "torchvision:resnet18": (("1x3x64x64",), {}),
    "transformers:BertModel": ((), {"num_hidden_layers": 2}),
    "models.py:Reader": (("2x5:int64",), {}),
    "models.py:Decomposed": (("6x6",), {}),
}[model]
request = CaptureRequest(model=model, target=targets[0], mode=mode, inputs=inputs, config=config)
for report in audit_targets(request, targets, load()):
    print(msgspec.json.encode(report).decode())
"""
#: The installed release is one of them: there a Mac would compute for real.
TARGETS = ("2.9/15.0", "2.13/15.0", "2.15/26.0")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize(
    "model", ["torchvision:resnet18", "transformers:BertModel", "models.py:Reader", "models.py:Decomposed"]
)
def test_both_builds_give_the_same_reports(build: Path, model: str, mode: str) -> None:
    (build / "models.py").write_text(MODELS)
    arguments = ("-c", AUDIT, model, mode, *TARGETS)
    on_mac, reached = on_a_mac(build, *arguments)
    here = subprocess.run([sys.executable, *arguments], cwd=build, capture_output=True, text=True, check=False)
    assert here.returncode == 0, here.stderr
    assert reached == []
    reports = [json.loads(line) for line in here.stdout.splitlines()]
    assert [json.loads(line) for line in on_mac.splitlines()] == reports
    assert [report["totals"]["calls"] > 0 for report in reports] == [True] * len(TARGETS)


def test_the_stand_ins_are_reached_without_it(build: Path) -> None:
    """Else this file could not fail."""
    _, reached = on_a_mac(build, "-", text="import torch\ntorch.ones(2, device='mps')")
    assert [line.partition(" ")[0] for line in reached] == ["aten::empty.memory_format"]
