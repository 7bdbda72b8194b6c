"""PyTorch's own expectations for MPS, evaluated with the operator database of the installed release.

The lists are literals in the body of functions of torch/testing/_internal/common_mps.py (2.8 and later), which only
exist where an MPS device does; they are decorators on OpInfos, active for a test class, a test and a dtype.
"""

import copy
import types
import unittest
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations, common_utils

from opcheck.common.versions import Target, Version
from opcheck.simulator.visible.surface import mps_backend
from scripts.opinfo.store import DTYPES, PASSES

_GATE = "if torch.backends.mps.is_available():"

#: pass -> the test whose decorators say it (test/test_mps.py, TestConsistency)
_TESTS = {"forward": "test_output_match", "gradient": "test_output_grad_match"}


def key(op: Any) -> str:
    """``name`` or ``name/variant``."""
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else str(op.name)


def lists(macos: str) -> types.ModuleType:
    """The functions of common_mps.py as they are on a Mac of this version.

    Raises:
        LookupError: the file does not hold the gate that it is known by.
    """
    path = Path(common_utils.__file__).with_name("common_mps.py")
    source = path.read_text(encoding="utf-8")
    if source.count(_GATE) != 1:
        message = f"{path} is not the file that it was in 2.8 to 2.15: no single {_GATE!r}"
        raise LookupError(message)
    before = common_utils.MACOS_VERSION
    common_utils.MACOS_VERSION = float(macos)
    module = types.ModuleType("torch.testing._internal.common_mps_of_a_mac")
    module.__package__ = "torch.testing._internal"
    try:
        code = compile(source.replace(_GATE, "if True:"), str(path), "exec")
        exec(code, module.__dict__)  # noqa: S102 - torch's own file
    finally:
        common_utils.MACOS_VERSION = before
    return module


def expectations(macos: str) -> dict[str, dict[str, dict[str, str]]]:
    """OpInfo -> pass -> dtype -> ``pass``, ``xfail`` or ``skip``; the dtypes that the CI runs and no others."""
    module = lists(macos)
    # 2.8 asks torch.backends.mps for the version, too.
    here = Target(torch=Version.parse(torch.__version__), macos=Version.parse(macos))
    with mps_backend(here):
        forward = list(module.mps_ops_modifier(_copies()))
        # The gradient test runs under the forward expectations too: without them 14 OpInfos of 2.13 would
        # "pass" whose kernels do not exist.
        gradient = list(module.mps_ops_grad_modifier(list(module.mps_ops_modifier(_copies()))))
    results: dict[str, dict[str, dict[str, str]]] = {}
    for op, op_with_grad in zip(forward, gradient, strict=True):
        supported = op.supported_dtypes("mps")
        rows: dict[str, dict[str, str]] = {name: {} for name in PASSES}
        for name in DTYPES:
            dtype = getattr(torch, name)
            if dtype not in supported:
                continue
            rows["forward"][name] = _state(op, dtype, _TESTS["forward"])
            if bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("mps"):
                rows["gradient"][name] = _state(op_with_grad, dtype, _TESTS["gradient"])
        results[key(op)] = rows
    return results


def _copies() -> list[Any]:
    return [copy.copy(op) for op in common_methods_invocations.op_db]


def _state(op: Any, dtype: torch.dtype, test: str) -> str:
    for decorator in op.decorators:
        if not hasattr(decorator, "is_active"):
            continue  # skipCPUIfNoLapack and its like: nothing about MPS
        if not decorator.is_active("TestConsistency", test, "mps", dtype, {}):
            continue
        for inner in decorator.decorators:
            if inner is unittest.expectedFailure:
                return "xfail"
            if getattr(inner, "__qualname__", "").startswith("skip.<locals>"):
                return "skip"
    return "pass"
