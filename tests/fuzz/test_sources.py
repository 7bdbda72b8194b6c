"""Sources, notebooks, requirements and environments that are damaged, for opcheck scan and doctor."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.features.doctor.macs import CLEAN
from tests.fuzz.documents import NASTY, TEXTS, bytes_mutated, damaged
from tests.fuzz.effort import fuzzed
from tests.fuzz.trial import Trial

PYTHON = b"""# -*- coding: utf-8 -*-
import os, torch
import torch.nn as nn
from torch.cuda.amp import autocast, GradScaler
os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Net(nn.Module):
    def forward(self, x, *, y: "float" = 1.0) -> object:
        with autocast():
            return f"{x.cuda()!r:>{10}}"  # opcheck: ignore[OC201] kept
if device.type == "mps":
    torch.set_default_dtype(torch.float64)
try:
    import apex
except ImportError as error:
    raise SystemExit(error)
match device:
    case torch.device(type="cuda", index=int(i)) if i > 0: pass
    case _: x = torch.zeros(2, dtype=torch.complex128, device="cuda:0")
torch.utils.data.DataLoader([], pin_memory=True, **{"a": 1})
torch.distributed.init_process_group(backend="nccl")
async def f(a, /, b): return [await c async for c in (lambda: 1)() if (d := c)]
torch.compile(Net(), backend="cudagraphs")
"""
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"language": "python", "name": "python3"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# x.cuda()"], "metadata": {}},
        {
            "cell_type": "code",
            "source": ["import torch\n", "%matplotlib inline\n", "!pip install x\n", "x.cuda()"],
            "metadata": {"language": "python"},
            "outputs": [],
            "execution_count": 1,
        },
        {"cell_type": "code", "source": "torch.cuda.synchronize()\n", "outputs": []},
    ],
}
REQUIREMENTS = b"""torch==2.9.1  # opcheck: ignore[OC214] soon
xformers>=0.0.20 ; sys_platform == "linux"
-r other.txt
-e .
--extra-index-url https://example.org/simple
flash-attn @ https://example.org/flash_attn-2.whl
nvidia-cudnn-cu12[a,b] !=1.0,<2 \\
    --hash=sha256:aa
"""
PYPROJECT = b"""[project]
name = "x"
dependencies = ["torch>=2", "xformers", "bitsandbytes; sys_platform == 'linux'"]
[project.optional-dependencies]
gpu = ["flash-attn"]
[tool.poetry.dependencies]
python = "^3.10"
apex = {version = "*", optional = true}
[build-system]
requires = ["setuptools", "triton"]
[dependency-groups]
dev = ["cupy", {include-group = "x"}]
"""
#: What a line of Python may begin or end with and still be read, or not.
PIECES = st.one_of(
    st.sampled_from(NASTY),
    st.sampled_from(
        (
            "# coding: undefined",
            "# coding: punycode",
            "# coding: latin-1",
            "# coding: rot13",
            "# coding: \x00",
            "x.cuda()\x0cy.cuda()",
            "x = '\u2028' ; x.cuda()  # opcheck: ignore[OC201] a",
            "x.cuda() # opcheck: ignore[",
            "# opcheck: ignore[OC201,OC999] \x1b[2J",
            "print 'python 2'",
            "exec 'x'",
            "\tx = 1",
            "x = (" * 90,
            "x = " + "-" * 3000 + "1",
            "x = " + "1+" * 2000 + "1",
            "a" + ".b" * 2000 + ".cuda()",
            "f(" * 80 + ")" * 80,
            "x = '\\d'",
            "1 is 1",
            "assert (1, 2)",
            "x = 0_1",
            "x = " + "9" * 5000,
            "x.to(device='cuda" + "0" * 5000 + "')",
            "x = 1if 1else 2",
            'f"{x!r:{y}}"',
            "def f(x, x): pass",
            "return",
            "from __future__ import braces",
            "\\",
            "'''",
            "x = b'\xff'",
            "\U0001d431.cuda()",
            "%%bash\nls",
            "!ls",
            "x?",
        )
    ),
    st.just(PYTHON.decode()),
)
PROGRAMS = st.one_of(
    bytes_mutated([PYTHON]),
    st.lists(PIECES, max_size=8).map(lambda lines: "\n".join(lines).encode("utf-8", errors="surrogatepass")),
)
ASKED = ("text", "json", "yaml", "sarif", "junit", "github", "gitlab", "csv", "jsonl", "markdown")


@fuzzed(
    st.tuples(PROGRAMS, st.sampled_from(ASKED)),
    quick=120,
    long=10000,
    kept=[
        (b"# coding: undefined", "text"),
        (b"x = '\\d'\nx.cuda()  # opcheck: ignore[OC201] kept", "text"),
        (b"x.cuda()\x0cy.cuda()  # opcheck: ignore[OC201] \xe2\x80\xa8", "json"),
    ],
)
def test_a_program_is_scanned(trial: Trial, content: tuple[bytes, str]) -> None:
    program, name = content
    trial(["scan", ".", "-f", name], {"train.py": program, "fine.py": PYTHON})


@fuzzed(st.tuples(damaged([NOTEBOOK], with_yaml=False), st.sampled_from(ASKED)), quick=80, long=6000)
def test_a_notebook_is_scanned(trial: Trial, content: tuple[bytes, str]) -> None:
    notebook, name = content
    trial(["scan", "a.ipynb", "-f", name], {"a.ipynb": notebook})


@fuzzed(
    st.tuples(
        st.one_of(
            bytes_mutated([REQUIREMENTS, PYPROJECT]),
            st.lists(TEXTS, max_size=5).map(lambda lines: "\n".join(lines).encode(errors="replace")),
        ),
        st.sampled_from(("requirements.txt", "pyproject.toml")),
        st.booleans(),
    ),
    quick=80,
    long=6000,
)
def test_requirements_are_read(trial: Trial, content: tuple[bytes, str, bool]) -> None:
    text, name, scanned = content
    environment = {"environment.json": msgspec.json.encode(CLEAN)}
    if scanned:
        trial(["scan", "sub"], {f"sub/{name}": text})
    else:
        arguments = ["doctor", "--from", "environment.json", "--requirements", f"sub/{name}"]
        trial(arguments, {f"sub/{name}": text, **environment})


ENVIRONMENT: Any = json.loads(msgspec.json.encode(CLEAN))


@fuzzed(
    st.tuples(damaged([ENVIRONMENT], with_yaml=False), PROGRAMS, st.sampled_from(("text", "json", "yaml"))),
    quick=80,
    long=6000,
)
def test_an_environment_is_examined(trial: Trial, content: tuple[bytes, bytes, str]) -> None:
    environment, program, name = content
    arguments = ["doctor", "--from", "e.json", "--script", "train.py", "-f", name]
    trial(arguments, {"e.json": environment, "train.py": program})
