"""Find the smallest change that makes a run fit a Mac: precision, tiling, unloading, checkpointing, batch, release.

A change that alters the calls is captured again; a change of lifetimes alone is replayed.  Starts no
process: the orchestrator captures.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target
from opcheck.common.vocabulary import FitState
from opcheck.data.registrations import OpLists
from opcheck.judge.callgraph import routes_of
from opcheck.judge.memory.estimate import deciding, estimate
from opcheck.judge.memory.replay import list_taken
from opcheck.model.records import Lifetime, Memory, MemoryPlan, Trace
from opcheck.weights.stored import TYPES

#: Captures that a plan may take.
MOST_CAPTURES = 12
#: Changes that a plan has at most.
_CHANGES = 4
#: The share of the peak that a change must save to be tried with others.
_WORTH = 0.02
#: The components that diffusers loads from GGUF and keeps quantized; transformers makes whole weights of theirs.
_DENOISERS = frozenset({"transformer", "transformer_2", "unet"})
_ORDER: tuple[FitState, ...] = ("fits", "pressure", "raises")

Request = Callable[[CaptureRequest], CaptureRequest]


class MemoryChange(NamedTuple):
    """A change of the program: what it is, how it is written, and how to find out what it saves."""

    words: str
    code: str
    #: another capture shows it
    request: Request | None = None
    #: other lifetimes show it
    trace: Callable[[Trace], Trace] | None = None


class PlannedRun(NamedTuple):
    """A set of changes and the memory that the run takes with them."""

    changes: tuple[MemoryChange, ...]
    memory: Memory


def changes_for(request: CaptureRequest, trace: Trace, newest: Target) -> list[MemoryChange]:
    """Return the changes that a run could take, those that change least about the program first.

    Args:
        request: what was captured.
        trace: its trace.
        newest: the target with the newest release.
    """
    training = trace.mode == "train"
    changes: list[MemoryChange] = []
    if trace.inputs_note.startswith("as its pipeline"):
        changes += [
            # The components with weights but the last, those that are used up earliest first.
            *map(_unload, sorted(uses := _uses(trace), key=lambda name: uses[name][1])[:-1]),
            _step("vae_tiling", "VAE tiling", "pipeline.enable_vae_tiling()"),
            _step("attention_slicing", "attention slicing", "pipeline.enable_attention_slicing()"),
            *map(_quantize, ("Q8_0", "Q4_K") if _denoiser_weights(trace) else ()),
        ]
    is_single = trace.parameters and trace.parameter_bytes > 3 * trace.parameters
    if training:
        changes += [
            _step("checkpointing", "checkpointed activations", "model.gradient_checkpointing_enable()"),
            _setting("autocast bfloat16", "--autocast bfloat16", autocast="bfloat16"),
        ]
    if is_single and not request.dtype:
        dtype = "bfloat16" if training else "float16"
        changes.append(_setting(f"{dtype} weights", f"--dtype {dtype}", dtype=dtype))
    paged = MemoryChange("a paged optimizer (its state on the CPU)", "", trace=_page_optimizer)
    changes += [paged] if training else []
    batch = trace.sizes.get("batch", 1)
    for smaller in sorted({batch // 2, 1} - {0, batch}, reverse=True):
        changes.append(_step(f"batch={smaller}", f"a batch of {smaller}", f"batch={smaller}"))
    if newest.torch > request.target.torch:
        name = f"torch {newest.torch}"
        changes.append(MemoryChange(name, f"--{name}", lambda before: replace(before, target=newest)))
    return changes


def _setting(words: str, code: str, **values: str) -> MemoryChange:
    return MemoryChange(words, code, lambda request: replace(request, **values))


def _step(name: str, words: str, code: str) -> MemoryChange:
    return MemoryChange(words, code, lambda before: replace(before, changes=(*before.changes, name)))


def _owners(trace: Trace) -> dict[int, str]:
    """Return the component that each weight belongs to, by its storage."""
    weights = (life for life in trace.lifetimes if life.kind in {"parameter", "buffer"} and "." in life.name)
    return {life.storage: life.name.partition(".")[0] for life in weights}


def _unload(component: str) -> MemoryChange:
    def unload(trace: Trace) -> Trace:
        """Free the component's weights after the last call that reads them; what is used later is moved then."""
        owners, uses = _owners(trace), _uses(trace)
        if component not in uses:
            return trace
        end = uses[component][1] + 1

        def change(life: Lifetime) -> Lifetime:
            owner = owners.get(life.storage, "")
            if owner == component:
                return replace(life, freed=end)
            is_later = life.kind != "result" and owner in uses and uses[owner][0] >= end
            return replace(life, first=max(life.first, end)) if is_later else life

        return replace(trace, lifetimes=tuple(map(change, trace.lifetimes)))

    words = f"{component.replace('_', ' ')} unloaded"
    return MemoryChange(words, f"pipeline.{component} = None before the rest is moved", trace=unload)


def _denoiser_weights(trace: Trace) -> dict[int, int]:
    """Return the elements of each weight of a linear layer of the denoiser, by its storage."""
    owners = _owners(trace)
    inputs = (spec for call in trace.calls if call.op == "aten::linear" for spec in call.inputs)
    weights = (spec for spec in inputs if spec.argument == "weight" and owners.get(spec.storage) in _DENOISERS)
    return {spec.storage: math.prod(spec.shape) for spec in weights}


def _quantize(kind: str) -> MemoryChange:
    """Return the change to weights of GGUF: a layer makes its weight from them at each call.

    diffusers/quantizers/gguf/utils.py, ``GGUFLinear.forward_native``: in half precision, and again in the dtype that is
    computed with.
    """
    of_block, bytes_of_block = next(row[1:] for row in TYPES["ggml"].values() if row[0] == kind)

    def quantize(trace: Trace) -> Trace:
        weights = _denoiser_weights(trace)
        sizes = {storage: count * bytes_of_block // of_block for storage, count in weights.items()}
        lives = [replace(life, nbytes=sizes.get(life.storage, life.nbytes)) for life in trace.lifetimes]
        number = min((life.storage for life in lives), default=0)
        for index, call in enumerate(trace.calls):
            read = {spec.storage for spec in call.inputs if spec.storage in weights}
            for storage in sorted([*read, *read]) if call.op == "aten::linear" else ():
                number -= 1
                size = 2 * weights[storage]
                lives.append(Lifetime(storage=number, nbytes=size, first=index, freed=index + 1, kind="result"))
        return replace(trace, lifetimes=tuple(lives))

    return MemoryChange(
        f"the denoiser's weights as GGUF {kind}",
        "from_single_file(..., quantization_config=GGUFQuantizationConfig(compute_dtype=...))",
        trace=quantize,
    )


def _uses(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return the first and the last call that read a weight of each component."""
    owners = _owners(trace)
    uses: dict[str, tuple[int, int]] = {}
    for index, call in enumerate(trace.calls):
        for spec in call.inputs if call.phase != "move" else ():
            if owner := owners.get(spec.storage, ""):
                uses[owner] = (uses.get(owner, (index, 0))[0], index)
    return uses


def _page_optimizer(trace: Trace) -> Trace:
    """Leave the optimizer's state out: it exists in CPU memory, and each step moves a part."""
    kept: list[Lifetime] = [piece.life for piece in list_taken(trace) if piece.kind != "optimizer"]
    return replace(trace, lifetimes=tuple(kept))


class PlanSearch:
    """Searches the smallest set of changes.

    Args:
        request: what was captured.
        trace: its trace.
        lists: the op lists.
        mac: GB of the Mac.
        capture: captures another request; None: it does not run, or does not have the change.
    """

    def __init__(
        self,
        request: CaptureRequest,
        trace: Trace,
        lists: OpLists,
        mac: int,
        capture: Callable[[CaptureRequest], Trace | None],
    ) -> None:
        self._request, self._lists, self._mac, self._capture = request, lists, mac, capture
        self._traces: dict[tuple[str, ...], Trace | None] = {(): trace}

    def search(self, options: Sequence[MemoryChange]) -> Iterator[MemoryPlan]:
        """Yield the smallest set of changes that runs at all, and the smallest that fits, where they differ."""
        base = self._outcome(())
        if base is None:
            return
        best = _ORDER.index(_state(base.memory))
        useful = list(options)
        for count in range(1, _CHANGES + 1):
            found = list(filter(None, map(self._outcome, itertools.combinations(useful, count))))
            better = min(found, key=lambda each: _ORDER.index(_state(each.memory)), default=base)
            if _ORDER.index(_state(better.memory)) < best:
                best = _ORDER.index(_state(better.memory))
                yield self._record(better)
            if best == 0:
                return
            if count == 1:
                most = _count_needed(base.memory) * (1 - _WORTH)
                useful = [each.changes[0] for each in found if _count_needed(each.memory) <= most]

    def _outcome(self, changes: tuple[MemoryChange, ...]) -> PlannedRun | None:
        key: tuple[str, ...] = ()
        request = self._request
        for change in changes:
            if change.request is not None:
                key, request = (*key, change.words), change.request(request)
        if key not in self._traces:
            if len(self._traces) > MOST_CAPTURES:
                return None
            self._traces[key] = self._capture(request)
        trace = self._traces[key]
        if trace is None:
            return None
        for change in changes:
            trace = change.trace(trace) if change.trace else trace
        routes = routes_of(trace.calls, request.target, self._lists)
        memory = estimate(trace, request.target, asked=self._mac, routes=routes)
        return None if memory is None else PlannedRun(changes, memory)

    def _record(self, outcome: PlannedRun) -> MemoryPlan:
        mac = deciding(outcome.memory)
        assert mac is not None
        return MemoryPlan(
            changes=tuple(change.words for change in outcome.changes),
            how=tuple(change.code for change in outcome.changes if change.code),
            memory=mac.memory,
            state=mac.state,
            peak=outcome.memory.peak.total,
            allocated=mac.allocated,
            other=mac.other,
            checked="captured" if any(change.request for change in outcome.changes) else "replayed",
        )


def _state(memory: Memory) -> FitState:
    mac = deciding(memory)
    return mac.state if mac else "fits"


def _count_needed(memory: Memory) -> int:
    """Return the bytes that decide about a Mac: tensors and the workspace of a call."""
    workspace = memory.allocation.workspace if memory.allocation else 0
    return memory.peak.total + workspace
