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
from opcheck.data.python_names import python_names
from opcheck.data.registrations import OpLists
from opcheck.features.weights.weights_records import WORKS, PartOutcome
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall, TensorSpec, Verdict

#: unpacking.yaml: what plain torch code calls to unpack the blocks of GGUF.
UNPACKING: dict[str, Any] = load_shipped(Path(__file__).with_name("unpacking.yaml"))
#: Kinds of dtype that a program casts before it computes.
_STORAGE_ONLY = frozenset({"float8", "sub_byte"})
#: Kinds of dtype that weights are multiplied in, or cast from.
_COMPUTES = _STORAGE_ONLY | {"float", "complex"}
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
            return PartOutcome(
                part=name, outcome="unknown", because=f"torch has no dtype for {name}"
            )
        if not has_dtype(name, target.torch):
            return PartOutcome(
                part=name,
                outcome="raises_at_load",
                because=f"torch {target.torch} has no {name}",
                text=f"AttributeError: module 'torch' has no attribute '{name}'",
                instead=f"{_NEWER}a file of another dtype",
            )
        move = self._verdict("aten::_to_copy", name, name, target, of="cpu")
        if move.status == "unsupported":
            return _make_refusal(
                name,
                "raises_at_load",
                move,
                f"{_NEWER}{_cast_line(name)} on the CPU, then .to('mps')",
            )
        kind = DTYPES[name].kind
        cast = self._verdict("aten::_to_copy", name, "float16", target)
        product = self._verdict("aten::mm", name, name, target)
        on_cpu = f"{_NEWER}{_cast_line(name)} on the CPU, then .to('mps')"
        if kind in _STORAGE_ONLY and cast.status != "unsupported" and kind != "sub_byte":
            return PartOutcome(
                part=name,
                outcome="loads",
                because="it is stored on the GPU and cast there before a product; "
                "a product of it alone raises",
                evidence=_evidence(cast) or _evidence(product),
            )
        if kind in _COMPUTES and "unsupported" in {cast.status, product.status}:
            refusing = cast if cast.status == "unsupported" else product
            return _make_refusal(name, "raises_at_run", refusing, on_cpu)
        return PartOutcome(part=name, outcome="loads", because="the GPU has this dtype")

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
            # One with a condition depends on arguments that are not known here.
            effects = [each for each in advisories if each.parsed is None and not each.when]
            if effects:
                yield PartOutcome(
                    outcome="wrong",
                    because=f"{effects[0].summary} {op} of {dtype} unpacks its blocks",
                    instead=f"{_NEWER}a file of Q8_0, which needs no {op}",
                    evidence=tuple(effects[0].links),
                )
            elif verdict.status == "fallback" and (verdict.kind != "env" or target.cpu_fallback):
                yield PartOutcome(
                    outcome="runs_on_cpu",
                    because=f"{op} of {dtype}, which unpacks its blocks, falls back to the CPU in each call",
                    instead=f"{_NEWER}a file of Q8_0",
                )
            elif verdict.status == "unknown":
                yield PartOutcome(outcome="unknown", because=f"opcheck has no verdict of {op}")
            elif verdict.status != "native":
                yield PartOutcome(
                    outcome="raises_at_run",
                    because=f"{op} of {dtype}, which unpacks its blocks, has no kernel on MPS",
                    text=verdict.prints,
                    instead=f"{_NEWER}PYTORCH_ENABLE_MPS_FALLBACK=1 (--fallback), or a file of Q8_0",
                )


def _make_refusal(name: str, outcome: Any, verdict: Verdict, instead: str) -> PartOutcome:
    return PartOutcome(
        part=name,
        outcome=outcome,
        because=verdict.because,
        text=verdict.prints,
        instead=instead,
        evidence=_evidence(verdict),
    )


def _evidence(verdict: Verdict) -> tuple[str, ...]:
    return tuple(
        ": ".join(filter(None, (each.where, each.detail))) for each in verdict.evidence[:2]
    )


def _cast_line(name: str) -> str:
    """Return the line that makes a dtype one that every release computes with."""
    return f"cast it: tensor.to(torch.{CAST_TO[DTYPES[name].kind]})"


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
