"""Which expected failures are the CPU's own: python -m scripts.opinfo_reference (needs torch, no recording).

test/test_mps.py compares MPS with the CPU.  Where the CPU raises for a sample the test fails whatever MPS does, so
that the expected failure says nothing of MPS.  Runs, on the CPU of the installed release, every OpInfo with every
dtype for which some release's evaluation expects a failure, and writes op_lists/opinfo/reference.yaml.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.data import opinfo
from scripts.opinfo import ci, record, reference
from scripts.opinfo.store import PASSES

_MOST_SAMPLES = 40


def main() -> int:
    """Write the file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ops = {ci.key(op): op for op in record.op_db()}
    lines = sorted(opinfo.lines(), key=Version.parse)
    found: dict[str, dict[str, list[str]]] = {name: {} for name in PASSES}
    evaluations = [one for line in lines if (one := opinfo.read(line)) is not None]
    for name, op in sorted(ops.items()):
        for kind in PASSES:
            expected = {
                dtype
                for evaluation in evaluations
                if name in evaluation.opinfos
                for dtype, state in evaluation.dtypes(name, kind).items()
                if state == "xfail"
            }
            raising = [
                text for text in sorted(expected) if raises(op, text, gradient=kind != "forward")
            ]
            if raising:
                found[kind][name] = raising
    reference.write(str(Version.parse(torch.__version__)), found)
    return 0


def raises(op: Any, name: str, *, gradient: bool) -> bool:
    """Whether the CPU raises for one of the OpInfo's samples of the dtype."""
    dtype = getattr(torch, name)
    try:
        samples = op.sample_inputs(
            "cpu",
            dtype,
            requires_grad=dtype.is_floating_point or dtype.is_complex,
            include_conjugated_inputs=dtype.is_complex and op.test_conjugated_samples,
        )
        samples = list(itertools.islice(samples, _MOST_SAMPLES))
    except Exception:  # noqa: BLE001 - torch's samples, of dtypes that the CPU may not have
        return True  # not shown to run, so that the failure is not shown to be of MPS
    for sample in samples:
        try:
            if gradient:
                _with_gradient(op, sample)
            else:
                with torch.inference_mode():
                    op(sample.input, *sample.args, **sample.kwargs)
        except Exception:  # noqa: BLE001, PERF203 - whatever it is, the test ends with it
            return True
    return False


def _with_gradient(op: Any, sample: Any) -> None:
    out = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [
        one
        for one in (out if isinstance(out, (list, tuple)) else [out])
        if isinstance(one, torch.Tensor) and one.requires_grad
    ]
    given = record.flat((sample.input, list(sample.args), sample.kwargs))
    inputs = [tensor for tensor in given if tensor.requires_grad and tensor.is_leaf]
    if outputs and inputs:
        gradients = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


if __name__ == "__main__":
    sys.exit(main())
