"""Keep the dtypes that no backend computes an operator in.

Usage: python -m scripts.refused_dtypes [--op PATTERN]

Each overload of the installed torch is called on the CPU with arguments made from its schema
(scripts/schema_bodies.py), in every dtype.  A dtype is kept where the overload runs in some other
one, no call in this one ran, every call that failed named the dtype as its reason, and PyTorch's
operator database lists the dtype for no device.  Dtypes with which PyTorch's CI expects the operator to pass on
MPS in some release, or for which some wheel has a Metal kernel of its name, are left out, except where a form in place
cannot hold the result: TensorIterator and the meta functions refuse that for every backend.  A form with ``out=`` is
called with results of several dtypes.  An overload that the database does not have is
kept with the dtypes that the meta kernel, which every backend shares, refuses as well, and so is every overload with
the unsigned dtypes of more than 8 bits, which the database hardly lists.  The result is op_lists/refused_dtypes.json.
"""

import argparse
import fnmatch
import functools
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch.testing._internal import common_methods_invocations

from opcheck.common.files import write_text
from opcheck.data import composites
from opcheck.data.registrations import data_directory, load
from opcheck.data.tables import REFUSED
from scripts import schema_bodies
from scripts.cross_dtypes import expected, kernels
from scripts.opinfo import ci
from scripts.opinfo import evaluation as opinfo
from scripts.opinfo.forks import record_in_forks
from scripts.schema_bodies import TABLES, Scene, overload_of

UNSIGNED = ("uint16", "uint32", "uint64")
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "complex32", "complex64"),
    *UNSIGNED,
)
#: What an error says whose reason is the dtype.
_OF_DTYPE = re.compile(
    r"not implemented for|dtype|floating|complex|integral|integer|[Bb]oolean|Bool|Half|Float|Long|"
    r"\bInt\b|result type|scalar type|supported for"
)
#: What TensorIterator, and meta functions in Python, raise for a result that the tensor to be written cannot hold
#: (aten/src/ATen/TensorIterator.cpp, torch/_prims_common/wrappers.py).
_OF_RESULT = re.compile(r"result type [\w.]+ can't be cast to the desired output type|Attempting to cast from")
CHUNK, SECONDS = 40, 60

#: by overload: the dtypes with which some call ran, those with which each call failed for its dtype, and of these the
#: ones whose result does not fit
Outcome = dict[str, tuple[list[str], list[str], list[str]]]


def scenes(dtype: torch.dtype, *, is_out: bool) -> Iterator[Scene]:
    """Yield each combination of shape and flags once, in one dtype; results of ``out=`` keep theirs."""
    seen = set()
    for scene in TABLES.scenes:
        number = 1 if not dtype.is_floating_point else scene.number
        first, rest = (kept if is_out or kept is torch.int64 else None for kept in scene.results)
        made = msgspec.structs.replace(scene, dtype=dtype, number=number, results=(first, rest))
        if made not in seen:
            seen.add(made)
            yield made


def outcomes(names: Sequence[str], device: str) -> Outcome:
    """Call each overload in each dtype on the CPU, or on the meta device."""
    schema_bodies._made = lambda tensor: tensor.to(device)  # noqa: SLF001 - arguments of another device
    recorded: Outcome = {}
    for name in names:
        ran, refused, unfit = [], [], []
        arguments = overload_of(name)._schema.arguments  # noqa: SLF001 - its only description
        is_out = any(each.is_out for each in arguments)
        # A bool tensor and a number make what the number is.
        has_number = any("number" in str(each.type) for each in arguments)
        for dtype in DTYPES:
            texts = [_attempt(overload_of(name), made) for made in scenes(getattr(torch, dtype), is_out=is_out)]
            if "" in texts:
                ran.append(dtype)
            elif any(_OF_DTYPE.search(text) for text in texts):
                refused.append(dtype)
                if not (is_out or (has_number and dtype == "bool")) and any(_OF_RESULT.search(text) for text in texts):
                    unfit.append(dtype)
        recorded[name] = (ran, refused, unfit)
    return recorded


def _attempt(overload: Any, scene: Scene) -> str:
    """Return what the call raises; empty where it runs."""
    try:
        args, kwargs = schema_bodies.arguments(overload._schema, scene)  # noqa: SLF001 - its only description
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            overload(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - made arguments need not fit
        return str(error) or type(error).__name__
    return ""


def in_forks(names: Sequence[str], device: str) -> Outcome:
    """Call in child processes: arguments that were made up may end one."""
    work = functools.partial(outcomes, device=device)
    return record_in_forks(names, work, Outcome, chunk=CHUNK, seconds=SECONDS)


def listed() -> Mapping[str, set[str]]:
    """Return the dtypes that the operator database lists for some device, by overload.

    An overload that is in no row has the dtypes of all rows whose samples reach it, and the inner
    operator of a composite (``_linalg_svd`` of ``linalg_svd``) those of the composite: the others
    may cast before they call it.
    """
    lists = load()
    by_base: dict[str, set[str]] = {}
    inner: dict[str, set[str]] = {}
    reached = _reached()
    bases: dict[str, list[str]] = {}
    for op in lists.names():
        bases.setdefault(op.partition(".")[0], []).append(op)
    for info in common_methods_invocations.op_db:
        dtypes = {
            str(dtype).removeprefix("torch.")
            for device in ("cpu", "cuda", "mps", "xpu")
            for dtype in info.supported_dtypes(device)  # type: ignore[no-untyped-call]  # torch's
        }
        # The database has one row for a function and its aliases (clamp and clip).
        names = (info.name, *(alias.name for alias in info.aliases))
        ops = {op for name in names for op in composites.api_names(name)}
        for op in [*ops]:
            # A database row of a function speaks of its form in place and with out, too.
            base = op.partition(".")[0]
            ops |= {*bases.get(base, ()), *bases.get(f"{base}_", ())}
        for op in ops:
            by_base.setdefault(op, set()).update(dtypes)
        for op in reached.get(ci.key(info), ()):
            inner.setdefault(op, set()).update(dtypes)
    known = inner | by_base
    return {op: by_base.get(op.replace("aten::_", "aten::", 1), dtypes) for op, dtypes in known.items()}


def _reached() -> Mapping[str, set[str]]:
    """Return the overloads that the samples of each row of the operator database reach, in any release."""
    reached: dict[str, set[str]] = {}
    for line in opinfo.lines():
        evaluation = opinfo.read(line)
        if evaluation is not None:
            for name in evaluation.opinfos:
                reached.setdefault(name, set()).update(evaluation.calls(name))
    return reached


def base(op: str) -> str:
    """Return the operator that an overload is a form of, in place or not."""
    return op.partition(".")[0].removesuffix("_")


def taken() -> Mapping[str, set[str]]:
    """Return the dtypes that a release is known to take on MPS, by operator."""
    known: dict[str, set[str]] = {}
    lists = load()
    for release in lists.releases:
        for op, dtype, state, _ in expected(release.line):
            if state == "pass":
                known.setdefault(base(op), set()).add(dtype)
        for op, dtypes in kernels(release.line, lists.operators(release.line)).items():
            known.setdefault(base(op), set()).update(dtypes)
    return known


def main() -> None:
    """Record and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", default="*", help="overloads of this pattern alone, printed")
    options = parser.parse_args()
    names = [
        name for name in sorted(load().names()) if fnmatch.fnmatch(name, options.op) and overload_of(name) is not None
    ]
    cpu, known = in_forks(names, "cpu"), listed()
    running = [name for name in names if name in cpu and cpu[name][0]]
    asked = {name for name in running if name not in known or cpu[name][2]}
    unsigned = {name for name in running if {*UNSIGNED} & {*cpu[name][1]}}
    meta = in_forks(sorted(asked | unsigned), "meta")
    on_mps = taken()
    refused: dict[str, list[str]] = {}
    for name, (ran, failed, unfit) in sorted(cpu.items()):
        elsewhere = known.get(name)
        shared = meta.get(name, ([], [], []))
        kept = [
            dtype
            for dtype in failed
            for of_all in [shared if name in asked or dtype in UNSIGNED else ([], [], [])]
            if (ran and dtype in unfit and dtype in of_all[2])
            or (
                ran
                and dtype not in on_mps.get(base(name), ())
                and (
                    dtype not in elsewhere
                    if elsewhere is not None and dtype not in UNSIGNED
                    else of_all[0] and dtype in of_all[1]
                )
            )
        ]
        if kept:
            refused[name] = kept
    if options.op != "*":
        print(json.dumps({name: (cpu[name], refused.get(name)) for name in names}, indent=1))
        return
    head = {"schema": 1, "torch": str(torch.__version__).partition("+")[0]}
    rows = ",\n".join(f"{json.dumps(n)}:{json.dumps(d)}" for n, d in refused.items())
    text = f'{json.dumps(head)[:-1]},\n"refused":{{\n{rows}\n}}}}\n'
    write_text(data_directory() / REFUSED.name, text)
    print(f"{len(refused)} of {len(cpu)} overloads")


if __name__ == "__main__":
    main()
