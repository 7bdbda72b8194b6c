"""What a run with kernels has: the kernels of its release, the check of each call, and the tally.

The tally counts which calls the kernels computed, and keeps the wrong results by line; it takes no memory in a loop.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from opcheck.common.errors import OpcheckError
from opcheck.common.picking import pick
from opcheck.common.versions import Target
from opcheck.common.vocabulary import RouteKind
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import OpLists
from opcheck.data.wheels import archive
from opcheck.kernels import library, values
from opcheck.kernels.host import bindings, release_kernels
from opcheck.kernels.host.host_call import HostCall, UnboundError
from opcheck.kernels.kernel_machine import KernelError, KernelMachine
from opcheck.kernels.kernel_records import Sample
from opcheck.kernels.pointwise import Unfit
from opcheck.model.records import CheckedShare, KernelNumbers, UncheckedCalls, WrongNumbers, WrongSample
from opcheck.numerics.child import line_tally
from opcheck.numerics.kernels.child.kernel_check import CheckedCall, KernelCheck
from opcheck.numerics.kernels.child.wrong_results import find_wrong

#: Reasons that a route alone is.
REASONS: dict[RouteKind, str] = load_shipped(__file__, "unchecked_routes.yaml")


#: Returns the line, the module and the phase of a call.
PlaceOf = Callable[[], line_tally.CallPlace]


class WrongPlace(NamedTuple):
    """Where wrong results come from."""

    op: str
    kernel: str
    dtype: str
    here: line_tally.CallPlace


class _WrongLine:
    """The wrong results of a place so far."""

    def __init__(self) -> None:
        self.calls = self.elements = self.compared = 0
        self.error = 0.0
        self.smallest: Sample | None = None
        self.worst: Sample | None = None
        self.call: HostCall | None = None

    def add(self, checked: CheckedCall) -> None:
        wrong = checked.wrong
        assert wrong is not None
        self.calls += 1
        self.elements += wrong.elements
        self.compared += checked.compared
        if self.worst is None or wrong.error > self.error:
            self.error, self.worst = wrong.error, wrong.worst
        if self.smallest is None or _weight(wrong.smallest) < _weight(self.smallest):
            self.smallest, self.call = wrong.smallest, wrong.call


def _weight(sample: Sample) -> tuple[bool, int]:
    """Return how complicated a sample is: digits alone after gross errors, many digits after few."""
    return not sample.gross, sum(map(len, sample.inputs))


class NumbersTally:
    """Takes each call of a run with what came of its check."""

    def __init__(self) -> None:
        self._all: Counter[str] = Counter()
        self._checked: Counter[str] = Counter()
        self._unchecked: dict[tuple[str, RouteKind, str], Counter[str]] = {}
        self._wrong: dict[WrongPlace, _WrongLine] = {}
        self._by_module: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(
        self,
        op: str,
        route: RouteKind,
        checked: CheckedCall | None,
        outputs: Sequence[Tensor],
        flops: int,
        place: PlaceOf,
    ) -> None:
        """Count a call.

        Args:
            op: the overload.
            route: what computes it on MPS.
            checked: what came of computing it by kernels; None: it was not tried.
            outputs: its results.
            flops: by the formulas of torch.utils.flop_counter.
            place: returns the line, the module and the phase.
        """
        elements, module = sum(output.numel() for output in outputs), place()[1]
        self._by_module[module].update(all=1, checked=int(checked is not None and not checked.reason))
        amounts = {"calls": 1, "elements": elements, "flops": flops}
        self._all.update(amounts)
        if checked is None or checked.reason:
            reason = checked.reason if checked else REASONS.get(route, "")
            self._unchecked.setdefault((op, route, reason), Counter()).update(amounts)
            return
        share = checked.compared / elements if elements else 1.0
        compared = min(checked.compared, elements)
        self._checked.update(calls=1, elements=compared, flops=int(flops * min(share, 1.0)))
        if checked.wrong is not None:
            dtype = str(outputs[0].dtype).removeprefix("torch.")
            key = WrongPlace(op, checked.kernels, dtype, place())
            self._wrong.setdefault(key, _WrongLine()).add(checked)

    def calls_inside(self, module: str) -> tuple[int, int]:
        """Return how many calls inside of a module kernels computed, and all of them."""
        inside = [counts for name, counts in self._by_module.items() if name == module or name.startswith(f"{module}.")]
        return sum(each["checked"] for each in inside), sum(each["all"] for each in inside)

    def wrong_calls(self) -> dict[WrongPlace, HostCall]:
        """Return a small call of each place with wrong results."""
        return {key: line.call for key, line in self._wrong.items() if line.call is not None}

    def result(
        self, torch: str, mode: Literal["shadow", "replace"], mended: dict[WrongPlace, str], notes: Iterable[str] = ()
    ) -> KernelNumbers:
        """Return the record of the run."""
        lines = sorted(self._wrong.items(), key=lambda item: -item[1].error)
        unchecked = sorted(self._unchecked.items(), key=lambda item: (-item[1]["calls"], item[0]))
        shares: dict[str, Any] = {
            name: CheckedShare(checked=self._checked[name], all=self._all[name])
            for name in ("calls", "elements", "flops")
        }
        return KernelNumbers(
            torch=torch,
            mode=mode,
            seed=values.SEED,
            **shares,
            wrong=tuple(_record(key, line, mended.get(key, "")) for key, line in lines),
            unchecked=tuple(
                UncheckedCalls(op=op, route=route, reason=reason, **amounts)
                for (op, route, reason), amounts in unchecked
            ),
            notes=tuple(notes),
        )


def _record(key: WrongPlace, line: _WrongLine, mended: str) -> WrongNumbers:
    assert line.smallest is not None
    assert line.worst is not None
    return WrongNumbers(
        **pick(key, "op", "kernel", "dtype"),
        **pick(line, "calls", "elements", "compared", "error"),
        smallest=_sample(line.smallest),
        worst=_sample(line.worst),
        mended=mended,
        place=line_tally.place(*key.here, line.calls),
    )


def _sample(sample: Sample) -> WrongSample:
    return WrongSample(operands=sample.inputs, result=sample.result, expected=sample.expected)


KernelsMode = Literal["", "shadow", "replace"]


class ShadowKernels:
    """A run whose calls are computed by kernels, too.

    Args:
        target: the release and the macOS.
        lists: the op lists.
        mode: shadow, or replace.
    """

    def __init__(self, target: Target, lists: OpLists, mode: Literal["shadow", "replace"]) -> None:
        self.mode, self.tally = mode, NumbersTally()
        self._lists, self._target = lists, target
        self.check: KernelCheck | None = None
        #: why no kernel can be run; empty where they can
        self.reason = ""
        try:
            self._machine = KernelMachine(archive.default_cache().parent / "kernels", optimized=True)
            released = self._read_kernels(lists.release(str(target.torch)).torch)
            self.check = KernelCheck(target, lists, released, replaces=mode == "replace")
        except OpcheckError as error:
            self.reason = f"no kernel was run: {error.message} ({error.context})"

    def _read_kernels(self, release: str) -> release_kernels.ReleaseKernels:
        return release_kernels.of_release(release, self._machine)

    def add(self, op: str, route: RouteKind, outputs: tuple[Tensor, ...], flops: int, place: PlaceOf) -> None:
        """Count a call of the run; ``outputs`` are its results."""
        checked = self.check.take() if self.check else None
        if route in {"view", "copy"}:
            return
        if checked is None and self.reason and route in {"metal", "either"}:
            checked = CheckedCall(reason=self.reason)
        self.tally.add(op, route, checked, outputs, flops, place)

    def result(self) -> KernelNumbers:
        """Return the record of the run; kernels of later releases that are kept here try what was wrong."""
        notes = (self.reason,) if self.reason else ()
        mended = self._find_mending() if self.check else {}
        release = self._lists.release(str(self._target.torch)).torch
        return self.tally.result(release, self.mode, mended, notes)

    def _find_mending(self) -> dict[WrongPlace, str]:
        left, mended = self.tally.wrong_calls(), dict[WrongPlace, str]()
        own = self._target.torch
        for entry in sorted(self._lists.releases, key=lambda each: each.version):
            if not left or entry.version <= own or not _is_kept(entry.torch):
                continue
            try:
                released = self._read_kernels(entry.torch)
            except OpcheckError:
                continue
            right = {key for key, call in left.items() if _is_right(call, released)}
            mended |= dict.fromkeys(right, entry.line)
            left = {key: call for key, call in left.items() if key not in right}
        return mended


def _is_kept(release: str) -> bool:
    """Return whether the kernels of a release are here, so that nothing is downloaded."""
    folder = archive.default_cache().parent / "kernels" / "libraries"
    return any(Path(folder, f"{name}-{release}.metallib").is_file() for name in library.SECTIONS)


def _is_right(call: HostCall, released: release_kernels.ReleaseKernels) -> bool:
    """Return whether the kernels of a release compute a call within the band."""
    try:
        bound = bindings.bind(call, released)
        bound.run()
        wrong, _ = find_wrong(call, bound)
    except (UnboundError, KernelError, Unfit):
        return False
    return wrong is None
