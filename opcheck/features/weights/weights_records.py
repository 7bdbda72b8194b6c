"""The answer of ``opcheck weights`` and its parts."""

import re
from typing import Annotated, Any

from msgspec import convert

from opcheck.common.yaml_text import load_shipped
from opcheck.data.packages import Becomes
from opcheck.model.records import Record, note

#: From best to worst: the worst part of a file decides.
ORDER: tuple[Becomes, ...] = ("loads", "casts", "runs_on_cpu", "unknown", "wrong", "raises_at_run", "raises_at_load")
#: Outcomes after which a program computes on the GPU.
WORKS = frozenset({"loads", "casts"})
_RELEASE = re.compile(r"\d+(\.\d+)*")


class PartOutcome(Record, frozen=True, kw_only=True):
    """What a dtype, a method or a library's way of loading comes to."""

    outcome: Becomes
    part: Annotated[str, note("the dtype, the method or the library")] = ""
    because: str = ""
    text: Annotated[str, note("what a Mac prints")] = ""
    instead: str = ""
    since: Annotated[
        str, note("the first torch release, or release of a library, that loads or casts it; empty: none does")
    ] = ""
    evidence: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[int, tuple[int, ...]]:
        """The place of the outcome, from best to worst; among equals a later release is worse."""
        release = tuple(map(int, self.since.split("."))) if _RELEASE.fullmatch(self.since) else ()
        return ORDER.index(self.outcome), release


_OUTCOMES: dict[str, dict[str, Any]] = load_shipped(__file__, "outcomes.yaml")


def outcome_of(key: str, *, evidence: tuple[str, ...] = (), **names: object) -> PartOutcome:
    """Return the outcome of this key in outcomes.yaml, with the names in its texts filled in."""
    entry = {"evidence": evidence, **_OUTCOMES[key]}
    names = {"newer": "{newer}", **names}
    texts = {key: text.format_map(names) for key, text in entry.items() if isinstance(text, str)}
    return convert({**entry, **texts}, PartOutcome)


class WeightsPart(Record, frozen=True, kw_only=True):
    """A file, or the files of a component."""

    name: str
    format: str
    outcome: Becomes
    bytes: int = 0
    dtypes: Annotated[dict[str, int], note("elements by dtype")] = {}
    text: str = ""


class WeightsMemory(Record, frozen=True, kw_only=True):
    """Bytes of the weights alone; activations and caches come on top."""

    loaded: Annotated[int, note("bytes on the GPU after loading")]
    loading: Annotated[int, note("most bytes at once while loading")]
    smallest_mac: Annotated[int | None, note("GB of the smallest Mac, as Apple sells it; null: none")]
    macs: Annotated[
        dict[str, bool], note("for each size of Mac, whether loading stays within Metal's working set")
    ] = {}


class WeightsAnswer(Record, frozen=True, kw_only=True):
    """What a file, a folder, a repository or a workflow becomes on a Mac."""

    schema: str = "opcheck-weights/1"
    source: str
    torch: str
    macos: str
    format: Annotated[str, note("safetensors, pt, gguf, pt2, onnx, transformers, diffusers, adapter or comfyui")]
    method: Annotated[str, note("of quantization; empty: none")] = ""
    dtypes: Annotated[dict[str, int], note("elements by dtype of torch, or by the file's own name of a type")]
    outcome: Becomes
    since: str = ""
    text: Annotated[str, note("what a Mac prints, or what happens")] = ""
    because: str = ""
    instead: Annotated[str, note("a file, a line or a command that works")] = ""
    bytes: Annotated[int, note("of all tensors in the files")]
    memory: WeightsMemory | None = None
    parts: Annotated[tuple[PartOutcome, ...], note("what each dtype, method or library comes to")] = ()
    files: tuple[WeightsPart, ...] = ()
    evidence: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()


class MethodsAnswer(Record, frozen=True, kw_only=True):
    """What each method of quantization becomes on a Mac."""

    schema: str = "opcheck-weight-methods/1"
    torch: str
    macos: str
    methods: tuple[PartOutcome, ...]
