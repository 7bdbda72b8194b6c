"""Building a model and running meta kernels does not import torch's compiler."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys, torch
from opcheck.capture.child.build import without_compiler

gc.freeze()  # as a worker does
before = "torch._dynamo" in sys.modules
x = torch.empty(8, 8, device="meta")
with without_compiler():
    with without_compiler():
        torch.where(x > 0, x * x, x.tril()).normal_()
    torch.cat([x, x]).erfinv_()
print(before, "torch._dynamo" in sys.modules)

from opcheck.capture.child.build import building

with building():
    torch.nn.LSTM(512, 512)
    torch.nn.Embedding(1000, 512)
print("torch._dynamo" in sys.modules, gc.get_freeze_count() > 0)

# Outside, all is as before: the next call imports it, and it works.
x * x
with without_compiler():
    double = torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    print("torch._dynamo" in sys.modules, double(torch.ones(2)).tolist())
"""


def test_the_compiler_is_not_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == ["False False", "False True", "True [2.0, 2.0]"]
