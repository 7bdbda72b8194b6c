"""Sorts by merging and what selects from them: Sort.mm."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.kernels.host.host_call import CallArguments, HostCall, HostWork, Step, UnboundError, metal_type
from opcheck.kernels.host.release_kernels import Binder, ReleaseKernels

#: Elements of a thread, the fewest and the most threads of a block.
_EACH, _FEWEST, _MOST = 4, 32, 1024
#: Rows of so many elements are sorted by radix where they are halves; fewer rows than so many may be.
_LONG, _ROWS = 2048, 256
#: Rows up to this length have indices of 16 bits on the way.
_SHORT = 1 << 16


def _threads(length: int, width: int, rows: int) -> int:
    """Return the threads of a block (select_tptg)."""
    wanted = -(-length // _EACH)
    if rows <= 2 and length > _LONG:
        blocks = max(1, 4 // rows)
        wanted = min(wanted, max(_LONG, -(-length // blocks)) // _EACH)
    threads = min(max(1 << max(wanted - 1, 0).bit_length(), _FEWEST), _MOST)
    return min(threads, 512 if rows <= _ROWS else 256) if width > 4 else threads


def _is_radix(source: Tensor, length: int, block: int, rows: int) -> bool:
    """Return whether rows are sorted by radix (should_use_radix)."""
    width = source.element_size()
    if width > 4:
        return False
    if source.is_floating_point() and width == 2 and length >= _LONG:
        return True
    merges = max(-(-length // block) - 1, 0).bit_length()
    passes = 2 if width <= 2 else 4
    return rows < _ROWS and passes * 3 <= 2 * (1 + merges) + 2


def bind_sort(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind sort, topk and kthvalue (Sort.mm, sort_out_mps_impl): a block a row, or blocks that are merged."""
    arguments = call.arguments
    source, output = arguments["self"], call.outputs[0]
    if not source.dim():
        raise UnboundError("a tensor without dimensions is copied")
    down = bool(arguments.get("descending") or (call.name == "topk" and arguments["largest"]))
    stable = bool(arguments.get("stable"))
    dim = arguments["dim"] % source.dim()
    most = int(arguments.get("k", 1))
    picked = {"topk": (0, most), "kthvalue": (most - 1, 1)}.get(call.name)
    moved = source.movedim(dim, -1)
    last = dim == source.dim() - 1
    # A full sort along another dimension always has blocks to merge; it copies rows first.
    rows_of = (moved if last else moved.contiguous()).reshape(-1, source.shape[dim])
    rows, length = rows_of.shape
    if length <= 1:
        raise UnboundError("rows of one element are copied")
    threads = _threads(length, source.element_size(), rows)
    block = threads * _EACH
    if _is_radix(source, length, block, rows):
        raise UnboundError("a sort by radix is not in the table")
    chosen = picked[1] if picked else length
    values = torch.empty(rows, chosen, dtype=source.dtype)
    places = torch.empty(rows, chosen, dtype=torch.int64)
    bound = {
        "inp": rows_of, "out_vals": values, "out_idx": places, "size": length,
        "strides": (rows_of.stride(1), rows_of.stride(0)), "desc": down, "sel": picked or (0, 0),
    }  # fmt: skip
    word = metal_type(source)
    if length <= block and (last or picked):
        name = f"sort_block_topk_{word}" if picked else f"sort_block_{word}"
        name = f"{name}_tptg{threads}{'_stable' * (stable and not picked)}"
        steps: tuple[Step, ...] = (release.launch(name, bound, (threads, rows, 1), (threads, 1, 1)),)
    else:
        direct = last or chosen == 1
        keyed = source.dtype == torch.float32 and length > block and direct
        merge = BlockSort(word, threads, keyed, direct, stable, picked is not None)
        steps = merge.launches(release, bound, rows, length)
    ordered = values.reshape(*moved.shape[:-1], chosen).movedim(-1, dim)
    indices = places.reshape(*moved.shape[:-1], chosen).movedim(-1, dim)
    # Which of equal elements comes first is only decided where the sort is stable.
    return CallArguments(steps, (ordered.reshape(output.shape), indices.reshape(output.shape) if stable else None))


class BlockSort(NamedTuple):
    """A sort by blocks, which are merged by pairs (sort_multi_block)."""

    word: str
    threads: int
    #: sorts integers of the same order in place of floats
    keyed: bool
    #: the last merge writes the results
    direct: bool
    stable: bool
    picks: bool

    def launches(self, release: ReleaseKernels, bound: dict[str, Any], rows: int, length: int) -> tuple[Step, ...]:
        """Return the sort of the blocks, and each round of merges."""
        blocks, short = -(-length // (self.threads * _EACH)), self.direct and length <= _SHORT
        results = bound["out_vals"], bound["out_idx"]
        kept = torch.int32 if self.keyed else results[0].dtype
        narrow = torch.int16 if short else torch.int32
        ready, spare = (
            (torch.empty(rows, length, dtype=kept), torch.empty(rows, length, dtype=narrow)) for _ in range(2)
        )
        key, form = "fkey_" * self.keyed, f"tptg{self.threads}{'_u16' * short}"
        grid, group = (blocks * self.threads, rows, 1), (self.threads, 1, 1)
        ending = "_stable" * (self.stable and not self.keyed)
        sorts, sorted_blocks = f"mb_sort_block_{key}{self.word}_{form}{ending}", {"dv": ready[0], "di": ready[1]}
        steps: list[Step] = [release.launch(sorts, bound | sorted_blocks, grid, group)]
        tiles = 2
        while tiles // 2 < blocks:
            is_last = self.direct and tiles >= blocks
            name = f"mb_merge_{'uint' if self.keyed else self.word}_{form}"
            if is_last:
                name = f"mb_merge_final_{'topk_' * self.picks}{key}{self.word}_{form}"
            values, places = results if is_last else spare
            passed = {
                "vi": ready[0], "ii": ready[1], "vo": values, "io": places, "sel": bound["sel"],
                "dims": (length, tiles, blocks, 0), "desc": bound["desc"] and (is_last or not self.keyed),
            }  # fmt: skip
            steps.append(release.launch(name, passed, grid, group))
            tiles, ready, spare = tiles * 2, spare, ready
        if not (self.direct and blocks > 1):
            values, places = ready
            steps += [HostWork(lambda: results[0].copy_(values)), HostWork(lambda: results[1].copy_(places))]
        return tuple(steps)


BINDERS: dict[str, Binder] = dict.fromkeys(("sort", "topk", "kthvalue"), bind_sort)
