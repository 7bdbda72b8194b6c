"""What a stored dtype becomes on MPS: by the op lists' statements on moving it, casting it and computing with it."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opcheck.common.names import DTYPES
from opcheck.common.versions import Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.packages import Becomes
from opcheck.data.registrations import OpLists
from opcheck.data.tables import python_names
from opcheck.features.weights.weights_records import WORKS, PartOutcome, outcome_of
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall, TensorSpec, Verdict

#: unpacking.yaml: what plain torch code calls to unpack the blocks of GGUF.
UNPACKING: dict[str, Any] = load_shipped(Path(__file__).with_name("unpacking.yaml"))
#: Kinds of dtype that weights are multiplied in, or cast from.
_COMPUTES = frozenset({"float8", "sub_byte", "float", "complex"})
#: What each kind of dtype is cast to where it fails.
CAST_TO = defaultdict(
    lambda: "float32", complex="complex64", float8="bfloat16", sub_byte="bfloat16"
)
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
            minimum = self.lists.release(str(line)).minimum
            macos = max(self.target.macos, minimum)
            if (
                on(Target(torch=line, macos=macos, cpu_fallback=self.target.cpu_fallback)).outcome
                not in WORKS
            ):
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
        if kind in _COMPUTES and "unsupported" in {cast.status, product.status}:
            refusing = cast if cast.status == "unsupported" else product
            return _make_refusal(name, "raises_at_run", refusing)
        return outcome_of("native", dtype=name)

    def _verdict(
        self, op: str, dtype: str, result: str, target: Target, of: str = "mps"
    ) -> Verdict:
        return judge(_call(op, dtype, result, of), target, self.lists)

    def _block(self, kind: str, loader: str, target: Target) -> PartOutcome:
        if kind not in UNPACKING["loaders"][loader]["types"]:
            otherwise = UNPACKING["loaders"][loader]["otherwise"]
            return PartOutcome(part=f"{kind}, {loader}", **otherwise)
        calls = UNPACKING["calls"].get(kind, UNPACKING["calls"]["others"])
        worst = self._worst(calls, target)
        because = (
            worst.because or "its blocks stay as they are, and each call unpacks them on the GPU"
        )
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
    return PartOutcome(
        part=name,
        outcome=outcome,
        because=verdict.because,
        text=verdict.prints,
        instead=f"{_NEWER}cast it: tensor.to(torch.{CAST_TO[DTYPES[name].kind]}) on the CPU, then .to('mps')",
        evidence=_evidence(verdict),
    )


def _evidence(verdict: Verdict) -> tuple[str, ...]:
    return tuple(
        ": ".join(filter(None, (each.where, each.detail))) for each in verdict.evidence[:2]
    )


@functools.cache
def has_dtype(name: str, torch: Version) -> bool:
    """Return whether a release of torch has a dtype."""
    names = python_names().modules["torch"]
    return name not in names or python_names().has(str(torch), "torch", name)


@functools.cache
def _call(op: str, dtype: str, result: str, of: str) -> OpCall:
    names = ("self", "mat2") if op == "aten::mm" else ("self", "other")
    inputs = [
        TensorSpec(
            tensor=n,
            storage=n,
            dtype=dtype,
            shape=(256, 256),
            stride=(256, 1),
            device=of,
            argument=name,
        )
        for n, name in enumerate(names[: 1 if op.endswith(("_to_copy", ".Scalar")) else 2])
    ]
    made = TensorSpec(tensor=9, storage=9, dtype=result, shape=(256, 256), stride=(256, 1))
    return OpCall(op=op, inputs=tuple(inputs), outputs=(made,))
