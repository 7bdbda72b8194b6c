"""What files of weights become on a Mac: their dtypes, their blocks, their method of quantization, their pickle."""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from opcheck.capture.naming import package_folder
from opcheck.common.names import DTYPES
from opcheck.common.versions import Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.macs import MACS
from opcheck.data.packages import PACKAGES, Becomes, StorageMethod
from opcheck.data.registrations import OpLists
from opcheck.data.tables import NAMES
from opcheck.features.weights.quantizers import check_of, checks, read_keys
from opcheck.features.weights.weights_records import WORKS, MethodsAnswer, PartOutcome, WeightsMemory, outcome_of
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall, TensorSpec, Verdict
from opcheck.weights.stored import StoredFile
from opcheck.worker.environments import distribution_version

#: unpacking.yaml: what plain torch code calls to unpack the blocks of GGUF.
UNPACKING: dict[str, Any] = load_shipped(__file__, "unpacking.yaml")
#: Kinds of dtype that weights are multiplied in, or cast from.
_COMPUTES = frozenset({"float8", "sub_byte", "float", "complex"})
#: What each kind of dtype is cast to where it fails.
CAST_TO = defaultdict(lambda: "float32", complex="complex64", float8="bfloat16", sub_byte="bfloat16")
#: Is replaced by the first release that works, if any does.
_NEWER = "{newer}"


class DtypeJudge:
    """Judges dtypes on one target, and finds the releases where they work."""

    def __init__(self, target: Target, lists: OpLists) -> None:
        """Take the target and the op lists."""
        self.target = target
        self.lists = lists

    def dtype(self, name: str) -> PartOutcome:
        """Return what a dtype of torch becomes, or a type that torch does not have."""
        return self._add_since(lambda target: self._dtype(name, target))

    def block(self, kind: str, loader: str) -> PartOutcome:
        """Return what a type of GGUF becomes where a loader unpacks it on the GPU."""
        return self._add_since(lambda target: self._block(kind, loader, target))

    def calls(self, calls: Sequence[Sequence[str]]) -> PartOutcome:
        """Return what code that makes these calls becomes: pairs of an operator and a dtype."""
        return self._add_since(lambda target: self._worst(calls, target))

    def _worst(self, calls: Sequence[Sequence[str]], target: Target) -> PartOutcome:
        outcomes = self._judge_calls(calls, target)
        return max(outcomes, key=lambda each: each.rank, default=PartOutcome(outcome="loads"))

    def _add_since(self, on: Callable[[Target], PartOutcome]) -> PartOutcome:
        """Add the first release from which it works up to the newest."""
        own = on(self.target)
        since = ""
        for line in reversed(self.lists.versions):
            macos = max(self.target.macos, self.lists.release(str(line)).minimum)
            there = Target(torch=line, macos=macos, cpu_fallback=self.target.cpu_fallback)
            if on(there).outcome not in WORKS:
                break
            since = str(line)
        newer = f"torch {since} or newer, or " if since and own.outcome not in WORKS else ""
        return replace(own, since=since, instead=own.instead.replace(_NEWER, newer))

    def _dtype(self, name: str, target: Target) -> PartOutcome:
        if name not in DTYPES:
            return outcome_of("no_dtype", dtype=name)
        if not has_dtype(name, target.torch):
            return outcome_of("later_dtype", dtype=name, torch=target.torch)
        move = self._verdict("aten::_to_copy", name, name, target, of="cpu")
        if move.status == "unsupported":
            return _make_refusal(name, "raises_at_load", move)
        kind = DTYPES[name].kind
        cast = self._verdict("aten::_to_copy", name, "float16", target)
        product = self._verdict("aten::mm", name, name, target)
        if kind == "float8" and cast.status != "unsupported":
            evidence = _evidence(cast) or _evidence(product)
            return outcome_of("storage_only", dtype=name, evidence=evidence)
        # What a run does first: it casts weights, looks rows of an embedding up, multiplies.
        uses = (cast, self._verdict("aten::index_select", name, name, target), product)
        refusing = next((use for use in uses if use.status == "unsupported"), None)
        if kind in _COMPUTES and refusing is not None:
            return _make_refusal(name, "raises_at_run", refusing)
        return outcome_of("native", dtype=name)

    def _verdict(self, op: str, dtype: str, result: str, target: Target, of: str = "mps") -> Verdict:
        return judge(_call(op, dtype, result, of), target, self.lists)

    def _block(self, kind: str, loader: str, target: Target) -> PartOutcome:
        if kind not in UNPACKING["loaders"][loader]["types"]:
            return PartOutcome(part=f"{kind}, {loader}", **UNPACKING["loaders"][loader]["otherwise"])
        worst = self._worst(UNPACKING["calls"].get(kind, UNPACKING["calls"]["others"]), target)
        because = worst.because or "its blocks stay as they are, and each call unpacks them on the GPU"
        evidence = (UNPACKING["loaders"][loader]["evidence"], *worst.evidence)
        return replace(worst, part=f"{kind}, {loader}", because=because, evidence=evidence)

    def _judge_calls(self, calls: Sequence[Sequence[str]], target: Target) -> Iterator[PartOutcome]:
        """Yield what each call comes to, where it is not plainly native."""
        for op, dtype in calls:
            verdict = self._verdict(op, dtype, dtype, target)
            advisories = [self.lists.statements.by_id[name] for name in verdict.advisories]
            names: dict[str, Any] = {"op": op, "dtype": dtype}
            # One with a condition depends on arguments that are not known here.
            effects = [each for each in advisories if each.parsed is None and not each.when]
            if effects:
                evidence, summary = tuple(effects[0].links), effects[0].summary
                yield outcome_of("wrong_unpacking", evidence=evidence, summary=summary, **names)
            elif verdict.status == "fallback" and (verdict.kind != "env" or target.cpu_fallback):
                yield outcome_of("unpacked_on_cpu", **names)
            elif verdict.status == "unknown":
                yield outcome_of("unknown_unpacking", **names)
            elif verdict.status != "native":
                yield replace(outcome_of("no_kernel_to_unpack", **names), text=verdict.prints)


def _make_refusal(name: str, outcome: Becomes, verdict: Verdict) -> PartOutcome:
    way_out = f"{_NEWER}cast it: tensor.to(torch.{CAST_TO[DTYPES[name].kind]}) on the CPU, then .to('mps')"
    refusal = PartOutcome(part=name, outcome=outcome, because=verdict.because, text=verdict.prints)
    return replace(refusal, instead=way_out, evidence=_evidence(verdict))


def _evidence(verdict: Verdict) -> tuple[str, ...]:
    pairs = ((each.where, each.detail) for each in verdict.evidence[:2])
    return tuple(": ".join(filter(None, pair)) for pair in pairs)


@functools.cache
def has_dtype(name: str, torch: Version) -> bool:
    """Return whether a release of torch has a dtype."""
    names = NAMES.load().modules["torch"]
    return name not in names or NAMES.load().has(str(torch), "torch", name)


@functools.cache
def _call(op: str, dtype: str, result: str, of: str) -> OpCall:
    names = {"aten::mm": ("self", "mat2"), "aten::index_select": ("self",)}.get(op, ("self", "other"))
    inputs = [
        TensorSpec(tensor=n, storage=n, dtype=dtype, shape=(256, 256), stride=(256, 1), device=of, argument=name)
        for n, name in enumerate(names[: 1 if op.endswith(("_to_copy", ".Scalar")) else 2])
    ]
    made = TensorSpec(tensor=9, storage=9, dtype=result, shape=(256, 256), stride=(256, 1))
    return OpCall(op=op, inputs=tuple(inputs), outputs=(made,))


#: Signs of methods in the names of tensors.
_SIGNS: list[dict[str, Any]] = load_shipped(__file__, "tensor_names.yaml")
#: What each method of quantization becomes.
METHODS = PACKAGES.load().methods
#: Bytes of an element of the dtype that weights are made dense in.
_DENSE = 2
#: The release whose torch.load refuses classes (torch/serialization.py, weights_only=True).
_REFUSES_CLASSES = Version(2, 6)
#: pickled_names.yaml: what it accepts, and modules that no checkpoint needs.
_PICKLED: dict[str, list[str]] = load_shipped(__file__, "pickled_names.yaml")
_ACCEPTED = re.compile("|".join(_PICKLED["accepted"]))


def method_by_names(names: Iterable[str]) -> str:
    """Return the method of quantization that names of tensors show; empty: none."""
    names = [*names]

    def occurs(pattern: str) -> bool:
        return any(re.search(pattern, name) for name in names)

    fits = (s for s in _SIGNS if all(map(occurs, s["all"])) and not any(map(occurs, s.get("none", ()))))
    return next((str(sign["method"]) for sign in fits), "")


def of_file(stored: StoredFile, judge: DtypeJudge) -> Iterator[PartOutcome]:
    """Yield what each part of a file becomes."""
    if stored.format == "gguf":
        yield from _of_gguf(stored, judge)
    elif stored.format == "onnx":
        yield outcome_of("onnx")
    else:
        yield from map(judge.dtype, stored.elements())
    yield from of_pickle(stored, judge.target)


def of_pickle(stored: StoredFile, target: Target) -> Iterator[PartOutcome]:
    """Yield what ``torch.load`` refuses on a Mac: devices and classes."""
    if any(place.startswith("cuda") for place in stored.locations):
        yield outcome_of("saved_on_cuda")
    refused = sorted(name for name in stored.names if not _ACCEPTED.fullmatch(name))
    calls = [name for name in refused if name.partition(".")[0] in _PICKLED["system"]]
    if refused and target.torch >= _REFUSES_CLASSES:
        part = outcome_of("classes", name=refused[0])
        hint = f"do not load it: loading would call {calls[0]}" if calls else part.instead
        yield replace(part, instead=hint)


def _of_gguf(stored: StoredFile, judge: DtypeJudge) -> Iterator[PartOutcome]:
    """Yield what each library makes of the blocks of a GGUF file."""
    kinds = [*stored.elements()]
    blocks = [kind for kind in kinds if kind not in DTYPES]
    architecture = stored.metadata.get("general.architecture", "")
    is_image = architecture in UNPACKING["images"] or not architecture
    for loader in ("diffusers", "ComfyUI-GGUF") if is_image else ():
        yield from (judge.block(kind, loader) for kind in (*blocks, *({"bfloat16"} & {*kinds})))
    if not is_image:
        yield _by_transformers(architecture, blocks)
        # Text encoders of ComfyUI, and programs with the same code, unpack language models on the GPU.
        unpacked = (judge.block(kind, "ComfyUI-GGUF") for kind in blocks)
        yield from (part for part in unpacked if part.outcome in {"wrong", "raises_at_run"})
    yield from map(judge.dtype, (kind for kind in kinds if kind in DTYPES and kind != "bfloat16"))


def _by_transformers(architecture: str, blocks: Sequence[str]) -> PartOutcome:
    """Return what the installed transformers makes of an architecture."""
    packed, dense = _architectures()
    version = distribution_version("transformers")
    if not dense:
        return outcome_of("without_transformers")
    evidence = (f"transformers {version}, integrations/ggml.py and integrations/gguf",)
    if architecture not in dense | packed:
        names: dict[str, Any] = {"version": version, "architecture": architecture}
        return outcome_of("no_architecture", evidence=evidence, **names)
    form = "packed" if architecture in packed else "made_dense"
    part = outcome_of(form if blocks else "without_blocks", evidence=evidence)
    return replace(part, since=f"transformers {version}")


def _architectures() -> tuple[frozenset[str], frozenset[str]]:
    """Return the architectures that transformers keeps in blocks, and those that it makes dense."""
    folder = package_folder("transformers") / "integrations"
    return (
        read_keys(folder / "gguf" / "gguf_conversion_mapping.py", "GGUF_ARCHS"),
        read_keys(folder / "ggml.py", "GGUF_CONFIG_MAPPING"),
    )


def of_method(
    name: str, judge: DtypeJudge, dtypes: Iterable[str] = (), library: str = "transformers", bits: int = 4
) -> PartOutcome:
    """Return what a method of quantization becomes: by the library's own check of the machine, then by the list.

    Args:
        name: as in quantization_config.
        judge: of the target.
        dtypes: of the stored tensors, which some methods keep.
        library: that loads the weights.
        bits: of the weights, where a library has a quantizer for each number.
    """
    listed = METHODS.get(name)
    check = check_of(library, name, judge.target.torch, bits=bits)
    where = (check.where,) if check else ()
    own = PartOutcome(part=name, outcome="unknown", evidence=where)
    if listed:
        own = replace(own, because=listed.because, instead=listed.instead)
    if check and check.raises:
        because = own.because or f"the quantizer of {library} refuses a Mac"
        instead = own.instead or "weights that are not quantized"
        return replace(own, outcome="raises_at_load", because=because, text=check.raises, instead=instead)
    if listed is None:
        because = f"opcheck has no entry for the method {name}" + (", whose quantizer refuses no Mac" if check else "")
        return replace(own, because=because)
    outcome = "casts" if check and check.dequantizes else listed.outcome
    evidence = (*where, listed.evidence)
    own = replace(own, outcome=outcome, text=listed.prints, since=listed.since, evidence=evidence)
    if judge.target.torch not in listed.torch:
        needs = f"torch {listed.torch.since}"
        because = f"{listed.since} needs {needs}; opcheck has not read earlier releases of it"
        return replace(own, outcome="unknown", because=because, since=f"{needs}, {listed.since}")
    return max((*_narrow(listed, own, judge, dtypes), own), key=lambda part: part.rank)


def every_method(target: Target, lists: OpLists) -> MethodsAnswer:
    """Return what each method becomes: those of the list, and those of the installed transformers."""
    judge = DtypeJudge(target, lists)
    names = {name.removesuffix("_4bit").removesuffix("_8bit") for name in checks("transformers", target.torch)}
    outcomes = tuple(of_method(name, judge) for name in sorted({*METHODS, *names} - {"gguf"}))
    return MethodsAnswer(torch=str(target.torch), macos=str(target.macos), methods=outcomes)


def _narrow(listed: StorageMethod, own: PartOutcome, judge: DtypeJudge, dtypes: Iterable[str]) -> Iterator[PartOutcome]:
    """Yield what the operators and the dtypes of a method change."""
    if listed.calls:
        part = judge.calls(listed.calls)
        because = "; ".join(filter(None, (own.because, part.because)))
        since = ", ".join(filter(None, (own.since, part.since and f"torch {part.since}")))
        evidence = (*own.evidence, *part.evidence)
        instead = part.instead or own.instead
        yield replace(part, part=own.part, because=because, since=since, evidence=evidence, instead=instead)
    for part in map(judge.dtype, dtypes if listed.keeps else ()):
        evidence = (*own.evidence, *part.evidence)
        yield replace(part, part=f"{own.part}, {part.part}", evidence=evidence)


def memory(stored: Sequence[StoredFile], target: Target, *, dense: bool) -> WeightsMemory | None:
    """Return what the weights take, and on which Macs; None without tensors.

    Args:
        stored: the files that are loaded together.
        target: for its macOS.
        dense: whether tensors of less than two bytes an element become two.
    """
    sizes = [tensor for file in stored for tensor in file.tensors]
    if not sizes:
        return None
    least = _DENSE if dense else 0
    loaded = [each.nbytes and max(each.nbytes, each.elements * least) for each in sizes]
    # A tensor is read, cast or not, and then moved: the largest is there twice.
    loading = sum(loaded) + max(*loaded, *(each.nbytes for each in sizes))
    fitting = {mac.memory: loading <= mac.on(target.macos).nbytes for mac in MACS.load().sized}
    smallest = next((size for size, fits in fitting.items() if fits), None)
    macs = {f"{size} GB": fits for size, fits in fitting.items()}
    return WeightsMemory(loaded=sum(loaded), loading=loading, smallest_mac=smallest, macs=macs)


def total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the elements of each dtype in all files, the most frequent first."""
    sums: Counter[str] = Counter()
    for each in counts:
        sums.update(each)
    return dict(sums.most_common())
