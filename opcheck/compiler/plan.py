"""Chooses the variants of torch.compile to try."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from opcheck.capture.request import CaptureRequest
from opcheck.compiler.records import Variant
from opcheck.model.records import Record

#: What torch ships that runs everywhere; others can be named.
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
#: Those that generate no code: they do on mps what they do here.  The one to take first comes first.
PORTABLE = ("aot_eager", "aot_eager_decomp_partition", "eager")
#: of Inductor (torch/_inductor/__init__.py, list_mode_options)
MODES = ("", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = ("float32", "float16", "bfloat16")
RUNS = ("inference", "train")

#: The default: the stages of the compiler one by one, so that the first that fails is seen,
#: and Inductor for Metal in each dtype.
_STAGES = (
    Variant(backend="eager"),
    Variant(backend="eager", fullgraph=True),
    Variant(backend="aot_eager"),
    Variant(backend="aot_eager_decomp_partition"),
    Variant(backend="inductor"),
    Variant(backend="inductor", dynamic=True),
)
#: Stages whose answer is the same in training are tried in inference alone.
_TRAINED = {"aot_eager", "aot_eager_decomp_partition", "inductor"}

METAL = Variant(backend="inductor", metal=True)


class Plan(Record, frozen=True, kw_only=True):
    """The variants that the child process tries, and the limits of each."""

    variants: tuple[Variant, ...]
    #: where the program runs: cpu, or cuda where there is one
    device: str = "cpu"
    #: seconds for each variant
    seconds: float = 120.0
    #: a folder for what the kernels are compiled to; the caller removes it.  Empty: the child makes one.
    scratch: str = ""
    #: the folder of the target's Metal backend (data/wheels/inductor.py), and its release; empty: the installed one
    backend: str = ""
    backend_release: str = ""


class CompileRequest(Record, frozen=True, kw_only=True):
    """A model, and the variants to try on it; the target of ``capture`` is not looked at."""

    capture: CaptureRequest
    plan: Plan


def default(runs: Sequence[str], dtypes: Sequence[str]) -> tuple[Variant, ...]:
    """Return the usual variants: the stages in the first dtype, Inductor for Metal in every dtype."""
    return tuple(_default(runs, dtypes))


def _default(runs: Sequence[str], dtypes: Sequence[str]) -> Iterator[Variant]:
    for run in runs:
        training = run == "train"
        for stage in _STAGES:
            plain = not (stage.fullgraph or stage.dynamic)
            if not training or (plain and stage.backend in _TRAINED) or "inference" not in runs:
                yield _with_run(stage, dtypes[0], training=training)
        for dtype in dtypes:
            yield _with_run(METAL, dtype, training=training)


def every(runs: Sequence[str], dtypes: Sequence[str]) -> tuple[Variant, ...]:
    """Return variants of every backend with every setting, in every dtype."""
    variants = [
        Variant(backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode)
        for backend in BACKENDS
        for fullgraph, dynamic in itertools.product((False, True), (None, True))
        for mode in (MODES if backend == "inductor" else ("",))
    ]
    metal = [Variant(backend="inductor", metal=True, dynamic=dynamic) for dynamic in (None, True)]
    return tuple(
        _with_run(variant, dtype, training=run == "train")
        for run in runs
        for dtype in dtypes
        for variant in (*variants, *metal)
    )


def with_kernels_run(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return the variants, with the kernels of the Metal ones run on the CPU."""
    return tuple(msgspec.structs.replace(variant, run_metal=variant.metal) for variant in variants)


def named(
    backends: Sequence[str], runs: Sequence[str], dtypes: Sequence[str]
) -> tuple[Variant, ...]:
    """Return variants of the backends that the user names, without further settings; Inductor for Metal, too."""
    return tuple(
        _with_run(variant, dtype, training=run == "train")
        for run in runs
        for dtype in dtypes
        for backend in backends
        for variant in (Variant(backend=backend), *((METAL,) if backend == METAL.backend else ()))
    )


def _with_run(variant: Variant, dtype: str, *, training: bool) -> Variant:
    return Variant(
        backend=variant.backend,
        fullgraph=variant.fullgraph,
        dynamic=variant.dynamic,
        mode=variant.mode,
        metal=variant.metal,
        dtype=dtype,
        training=training,
    )
