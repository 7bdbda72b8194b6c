"""Chooses the variants of torch.compile to try."""

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from opcheck.capture.request import CaptureRequest
from opcheck.features.compile.compile_records import Variant
from opcheck.model.records import Record

#: What torch ships that runs everywhere; others can be named.
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
#: Those that generate no code: they do on mps what they do here.  The one to take first comes first.
PORTABLE = ("aot_eager", "aot_eager_decomp_partition", "eager")
#: of Inductor (torch/_inductor/__init__.py, list_mode_options)
MODES = ("", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = ("float32", "float16", "bfloat16")
RUNS = ("inference", "train")

#: Each stage before code is generated, so that the first failure is seen.
_STAGES = (
    Variant(backend="eager"),
    Variant(backend="eager", fullgraph=True),
    Variant(backend="aot_eager"),
    Variant(backend="aot_eager_decomp_partition"),
)
#: Stages whose answer may be another in training.
_TRAINED = {"aot_eager", "aot_eager_decomp_partition"}

METAL = Variant(backend="inductor", metal=True)
#: Inductor for Metal with each other setting.
_METAL_SETTINGS = (
    Variant(backend="inductor", metal=True, dynamic=True),
    Variant(backend="inductor", metal=True, fullgraph=True),
    *(Variant(backend="inductor", metal=True, mode=mode) for mode in MODES if mode),
)
#: The command line's name of AOTInductor; torch.compile has no such backend.
AOTINDUCTOR = "aotinductor"
_AHEAD = Variant(backend=AOTINDUCTOR, metal=True)


#: The file in ``Plan.scratch`` with the outcomes so far.
TRIED = "tried.json"


class CompilePlan(Record, frozen=True, kw_only=True):
    """The variants that the child process tries, and the limits of each."""

    variants: tuple[Variant, ...]
    #: where the program runs: cpu, or cuda where there is one
    device: str = "cpu"
    #: seconds for each variant
    seconds: float = 120.0
    #: a folder for the compiled kernels; the caller removes it.  Empty: the child makes one.
    scratch: str = ""
    #: the folder of the target's Metal backend (data/wheels/inductor.py), and its release; empty: the installed one
    backend: str = ""
    backend_release: str = ""


class CompileRequest(Record, frozen=True, kw_only=True):
    """A model, and the variants to try on it; the target of ``capture`` is not looked at."""

    capture: CaptureRequest
    plan: CompilePlan


def choose(
    runs: Sequence[str],
    dtypes: Sequence[str],
    *,
    backends: Sequence[str] = (),
    every_setting: bool = False,
    metal: bool = True,
) -> tuple[Variant, ...]:
    """Return the variants that the user requests; Metal's come first, since a run may be ended.

    Args:
        runs: of ``RUNS``.
        dtypes: the dtypes to try.
        backends: the names of backends; empty: the usual variants.
        every_setting: try every setting of the backends.
        metal: Inductor generates Metal; else code for the device of this machine.
    """
    if every_setting:
        variants = [v for v in every(runs, dtypes) if not backends or v.backend in backends]
        tried = {variant.backend for variant in variants}
        others = [name for name in backends if name not in tried]
        variants += variants_of_backends(others, runs, dtypes)
    elif backends:
        variants = [*variants_of_backends(backends, runs, dtypes, metal=metal)]
    else:
        variants = [*default(runs, dtypes, metal=metal)]
    usable = (variant for variant in variants if metal or not variant.metal)
    return tuple(sorted(usable, key=lambda variant: not variant.metal))


def default(
    runs: Sequence[str], dtypes: Sequence[str], *, metal: bool = True
) -> tuple[Variant, ...]:
    """Return the usual variants: the stages in the first dtype, Inductor in every dtype.

    Args:
        runs: of ``RUNS``.
        dtypes: the dtypes to try.
        metal: Inductor generates Metal; else code for the device of this machine.
    """
    inductor = METAL if metal else Variant(backend="inductor")
    dynamic = replace(inductor, dynamic=True)
    variants = []
    for run in runs:
        training = run == "train"
        for stage in _STAGES:
            trained = stage.backend in _TRAINED and not stage.fullgraph
            if not training or trained or "inference" not in runs:
                variants.append(_with_run(stage, dtypes[0], training=training))
        variants += [_with_run(inductor, dtype, training=training) for dtype in dtypes]
        variants.append(_with_run(dynamic, dtypes[0], training=training))
    return tuple(variants)


def every(runs: Sequence[str], dtypes: Sequence[str]) -> tuple[Variant, ...]:
    """Return variants of every backend with every setting, in every dtype; for Metal one setting at a time."""
    variants = [
        Variant(backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode)
        for backend in BACKENDS
        for fullgraph, dynamic in itertools.product((False, True), (None, True))
        for mode in (MODES if backend == "inductor" else ("",))
    ]
    return tuple(
        _with_run(variant, dtype, training=run == "train")
        for run in runs
        for dtype in dtypes
        for variant in (*variants, METAL, *_METAL_SETTINGS, *_ahead(run))
    )


def _ahead(run: str) -> tuple[Variant, ...]:
    """Return AOTInductor's variant; it compiles no training step."""
    return (_AHEAD,) if run == "inference" else ()


def with_kernels_run(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Return the variants, with the kernels of the Metal ones run on the CPU; AOTInductor's C++ needs a Mac."""
    return tuple(replace(v, run_metal=v.metal and v.backend != AOTINDUCTOR) for v in variants)


def variants_of_backends(
    backends: Sequence[str], runs: Sequence[str], dtypes: Sequence[str], *, metal: bool = True
) -> tuple[Variant, ...]:
    """Return variants of the backends that the user names, without further settings.

    Args:
        backends: the names.
        runs: of ``RUNS``.
        dtypes: the dtypes to try.
        metal: Inductor generates Metal; else code for the device of this machine.
    """
    return tuple(
        _with_run(variant, dtype, training=run == "train")
        for run in runs
        for dtype in dtypes
        for backend in backends
        for variant in (
            _ahead(run)
            if backend == AOTINDUCTOR
            else (Variant(backend=backend, metal=metal and backend == METAL.backend),)
        )
    )


def _with_run(variant: Variant, dtype: str, *, training: bool) -> Variant:
    return replace(variant, dtype=dtype, training=training)
