"""Which expected failures say nothing of MPS: python -m scripts.opinfo_reference [--only OPINFO] (needs torch).

test/test_mps.py compares MPS with the CPU.  Where the CPU raises for a sample the test fails whatever MPS does, and so
it does where the CPU's result is not determined: it depends on the seed (MPS has a generator of its own), it shows
memory that nothing has written, or it reads memory beside the input, which the test's copy of the input lacks.  Each
is tried on the CPU of the installed release: every OpInfo with every dtype for which some release's evaluation
expects a failure runs again with another seed, with new memory filled, and on copies of its inputs; the results are
compared by ``torch.testing.assert_close``.  Writes op_lists/opinfo/reference.yaml.
"""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from opcheck.common.versions import Version
from scripts.opinfo import ci, record, reference
from scripts.opinfo import evaluation as opinfo
from scripts.opinfo.store import PASSES

_MOST_SAMPLES = 40


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="one OpInfo, printed instead of written")
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _without_the_running_test()
    rows: dict[str, dict[str, dict[str, list[str]]]] = {
        reason: {kind: {} for kind in PASSES} for reason in reference.REASONS
    }
    evaluations = [opinfo.read(line) for line in sorted(opinfo.lines(), key=Version.parse)]
    for op in sorted(record.op_db(), key=ci.key):
        name = ci.key(op)
        if only and name != only:
            continue
        for kind in PASSES:
            expected = {
                dtype
                for evaluation in evaluations
                if evaluation is not None and name in evaluation.opinfos
                for dtype, state in evaluation.dtypes(name, kind).items()
                if state == "xfail"
            }
            for dtype in sorted(expected):
                reason = why(op, getattr(torch, dtype), gradient=kind != "forward")
                if reason:
                    rows[reason][kind].setdefault(name, []).append(dtype)
                if only:
                    print(name, kind, dtype, reason or "-")
    if not only:
        reference.write(str(Version.parse(torch.__version__)), rows)
    return 0


def _without_the_running_test() -> None:
    """Let OpInfo not look for the running test: it inspects the whole stack, which takes longer than most samples."""
    torch.manual_seed = torch.default_generator.manual_seed
    for path, module in list(sys.modules.items()):
        if path.startswith("torch.testing._internal") and hasattr(module, "extract_test_fn"):
            vars(module)["extract_test_fn"] = lambda: None


def why(op: Any, dtype: torch.dtype, *, gradient: bool) -> str:
    """Return the key of ``reference.REASONS`` for the OpInfo's samples of the dtype; empty where none holds."""
    results = _results(op, dtype, gradient=gradient)
    if results is None:
        return "raises"
    copied = _results(op, dtype, gradient=gradient, copies=True)
    if copied is None or _differ(results, copied):
        return "copied"
    filled = _results(op, dtype, gradient=gradient, under=_filled_memory)
    if filled is not None and _differ(results, filled):
        return "unwritten"
    drawn = _results(op, dtype, gradient=gradient, under=_other_seeds)
    return "random" if drawn is None or _differ(results, drawn) else ""


def _results(
    op: Any,
    dtype: torch.dtype,
    *,
    gradient: bool,
    copies: bool = False,
    under: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> list[list[torch.Tensor]] | None:
    """Return the tensors that each sample gives on the CPU; None where one of them raises.

    Args:
        op: the OpInfo.
        dtype: of the samples.
        gradient: return the gradients, too.
        copies: run on copies of the inputs, as the test does.
        under: what holds while the samples run, and not while they are made.
    """
    try:
        samples = record.samples_of(op, dtype, _MOST_SAMPLES, device="cpu")
    except Exception:  # noqa: BLE001 - torch's samples, of dtypes that the CPU may not have
        return None  # not shown to run, so that the failure is not shown to be of MPS
    results = []
    try:
        with under():
            for made in samples:
                sample = made.transform(_copy) if copies else made
                torch.manual_seed(0)
                results.append(_tensors(op, sample, gradient=gradient))
    except Exception:  # noqa: BLE001 - whatever it is, the test ends with it
        return None
    return results


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _tensors(op: Any, sample: Any, *, gradient: bool) -> list[torch.Tensor]:
    """Return the results of one sample, and the gradients of its inputs.

    Gradients are enabled in either case, as in the test: resize_ raises of a tensor that requires one.
    """
    out = op(sample.input, *sample.args, **sample.kwargs)
    results = list(record.flat(out))
    outputs = [tensor for tensor in results if tensor.requires_grad]
    given = record.flat((sample.input, list(sample.args), sample.kwargs))
    inputs = [tensor for tensor in given if tensor.requires_grad and tensor.is_leaf]
    if gradient and outputs and inputs:
        gradients = [torch.ones_like(output) for output in outputs]
        grads: tuple[torch.Tensor | None, ...] = torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)
        results += [gradient for gradient in grads if gradient is not None]
    return [result.detach() for result in results]


@contextlib.contextmanager
def _filled_memory() -> Iterator[None]:
    """Fill memory that an operator allocates and does not write (torch.utils.deterministic)."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=before)


def _other_seeds() -> contextlib.AbstractContextManager[object]:
    """Let torch.manual_seed, which OpInfo calls before each random operator, set another seed."""
    original = torch.manual_seed
    return patch.object(torch, "manual_seed", lambda seed: original(seed + 1))


def _differ(first: list[list[torch.Tensor]], second: list[list[torch.Tensor]]) -> bool:
    """Return whether some sample gave another result."""
    same: Callable[..., None] = torch.testing.assert_close
    try:
        for left, right in zip(first, second, strict=True):
            same(left, right, equal_nan=True)
    except AssertionError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
