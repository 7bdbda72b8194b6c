"""What a run with kernels has: the kernels of its release, the check of each call, and the tally."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from torch import Tensor

from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Phase, RouteKind
from opcheck.data.registrations import OpLists
from opcheck.data.wheels import archive
from opcheck.kernels import library
from opcheck.kernels.host import bindings, release_kernels
from opcheck.kernels.host.host_call import HostCall, UnboundError
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.kernels.kernel_machine import KernelError, KernelMachine
from opcheck.kernels.pointwise import Unfit
from opcheck.model.records import KernelNumbers
from opcheck.numerics.kernels.child.kernel_check import CheckedCall, KernelCheck
from opcheck.numerics.kernels.child.numbers_tally import NumbersTally, WrongPlace
from opcheck.numerics.kernels.child.wrong_results import find_wrong
from opcheck.tracing.source_locations import Site

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

    def _read_kernels(self, release: str) -> ReleaseKernels:
        return release_kernels.of_release(release, self._machine)

    def add(
        self,
        op: str,
        route: RouteKind,
        outputs: tuple[Tensor, ...],
        flops: int,
        place: Callable[[], tuple[Site, str, Phase]],
    ) -> None:
        """Count a call of the run; ``outputs`` are its results."""
        checked = self.check.take() if self.check else None
        if route in {"view", "copy"}:
            return
        if checked is None and self.reason and route in {"metal", "either"}:
            checked = CheckedCall(reason=self.reason)
        elements = sum(output.numel() for output in outputs)
        dtype = str(outputs[0].dtype).removeprefix("torch.") if outputs else ""
        self.tally.add(op, route, checked, elements, flops, place, dtype)

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


def _is_right(call: HostCall, released: ReleaseKernels) -> bool:
    """Return whether the kernels of a release compute a call within the band."""
    try:
        bound = bindings.bind(call, released)
        bound.run()
        wrong, _ = find_wrong(call, bound)
    except (UnboundError, KernelError, Unfit):
        return False
    return wrong is None
