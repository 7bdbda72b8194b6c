"""Suggest what lowers the peak memory of a run."""

from collections.abc import Iterator, Sequence

from opcheck.common.text import filesize
from opcheck.judge.memory.allocations import Taken
from opcheck.model.records import Trace


def advice(trace: Trace, pieces: Sequence[Taken], peak: int, total: int) -> Iterator[str]:
    """Yield what lowers the peak; each suggestion saves at least a tenth of it.

    Args:
        trace: what ran.
        pieces: its memory.
        peak: index of the call where it is highest.
        total: bytes that are there then.
    """
    worth = total // 10
    there = [piece for piece in pieces if piece.during(peak)]
    activations = [piece.life for piece in there if piece.kind == "activations"]
    grows = sum(life.nbytes for life in activations)
    in_step = trace.calls[peak].phase == "optimizer"
    if in_step and grows > worth:
        yield f"{filesize(grows)} are temporaries of the optimizer's step"
    batch = _batch(trace.inputs)
    if not in_step and batch > 1 and grows // 2 > worth:
        saved = grows - grows * (batch // 2) // batch
        yield (
            f"a batch of {batch // 2} instead of {batch}: about {filesize(saved)} less, "
            "if all activations grow with the batch"
        )
    outputs = (spec for call in trace.calls for spec in call.outputs)
    single = {spec.storage for spec in outputs if spec.dtype == "float32"}
    wide = sum(life.nbytes for life in activations if life.storage in single)
    if trace.mode == "train":
        if not in_step and not trace.autocast and wide // 2 > worth:
            yield f"--autocast bfloat16: up to {filesize(wide // 2)} less of activations"
        yield from _checkpointing(trace, pieces, worth)
        return
    if trace.parameters and trace.parameter_bytes == 4 * trace.parameters:
        wide += sum(piece.life.nbytes for piece in there if piece.kind == "parameters")
        if wide // 2 > worth:
            yield f"--dtype float16: about {filesize(wide // 2)} less"
    yield from _held_for_nothing(trace, there, peak, worth)


def _batch(inputs: Sequence[str]) -> int:
    """Return the first dimension if all inputs share it (``x=8x3x224x224:float32``), else 0."""
    firsts = {text.rpartition("=")[2].partition(":")[0].partition("x")[0] for text in inputs}
    first = firsts.pop() if len(firsts) == 1 else ""
    return int(first) if first.isdigit() else 0


def _checkpointing(trace: Trace, pieces: Sequence[Taken], worth: int) -> Iterator[str]:
    """Suggest checkpointing where the forward pass keeps much for the backward pass."""
    first = next((i for i, call in enumerate(trace.calls) if call.phase == "backward"), None)
    if first is None:
        return
    activations = (piece for piece in pieces if piece.kind == "activations")
    kept = sum(piece.life.nbytes for piece in activations if piece.during(first))
    if kept > worth:
        yield (
            f"torch.utils.checkpoint: {filesize(kept)} are kept from forward for backward; "
            "checkpointed blocks keep their inputs only, and run forward twice"
        )


def _held_for_nothing(trace: Trace, there: Sequence[Taken], peak: int, worth: int) -> Iterator[str]:
    """Report memory that stays allocated at the peak although no later call reads it."""
    last: dict[int, int] = {}
    for index, call in enumerate(trace.calls):
        for spec in (*call.inputs, *call.outputs):
            last[spec.storage] = index
    lives = (piece.life for piece in there if piece.kind == "activations")
    idle = sum(life.nbytes for life in lives if last.get(life.storage, peak) < peak)
    if idle > worth:
        yield (
            f"{filesize(idle)} are held at the peak that no later call reads: run under "
            "torch.inference_mode() if gradients are on, or drop the references"
        )
