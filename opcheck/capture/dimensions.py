"""Name the dimensions of inputs that a user may vary: batch, length, height, width, frames.  Imports no torch."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opcheck.common.documents import brief
from opcheck.common.errors import UsageError
from opcheck.common.text import and_more

#: Names that an error lists.
_NAMES = 12
_SPEC = re.compile(r"(?:(?P<name>[^=]*)=)?(?P<sizes>\d+(?:x\d+)*):(?P<dtype>\w+)")
#: Inputs with the axis of time last: spectrograms with their bands first.
_BANDS_FIRST = re.compile(r"input_features|mel|spectrogram")

#: The names of the axes of floating inputs with so many axes: pictures and videos.
_SIDES = {4: {2: "height", 3: "width"}, 5: {2: "frames", 3: "height", 4: "width"}}


class Axis(NamedTuple):
    """One axis of an input: the place of the input among the specs, the axis and its size."""

    place: int
    axis: int
    size: int


def dimensions(specs: Sequence[str]) -> dict[str, tuple[Axis, ...]]:
    """Return the axes of each dimension by its name.

    Integer inputs of two axes are texts, floating ones of four are pictures, and of five videos.  Each axis has a
    name of its own too: ``NAME.AXIS``, or ``input0.AXIS`` for a positional input.

    Args:
        specs: the inputs as a report writes them: ``input_ids=1x128:int64``.
    """
    named: dict[str, list[Axis]] = {}
    inputs = list(_inputs(specs))
    firsts = {sizes[0] for _, _, sizes, _ in inputs if len(sizes) > 1}
    for place, name, sizes, dtype in inputs:
        for axis, size in enumerate(sizes):
            each = Axis(place, axis, size)
            named.setdefault(f"{name or f'input{place}'}.{axis}", []).append(each)
            usual = _usual_name(name, sizes, dtype, axis)
            if usual == "batch" and (len(firsts) > 1 or len(sizes) < 2):
                continue
            if usual:
                named.setdefault(usual, []).append(each)
    lengths = named.get("length", [])
    if len({each.size for each in lengths}) > 1:
        # Inputs of several lengths: those of the first one vary.
        named["length"] = [each for each in lengths if each.size == lengths[0].size]
    usual_first = sorted(named, key=lambda name: "." in name)
    return {name: tuple(named[name]) for name in usual_first}


def unknown_dimension(name: str, sizes: Mapping[str, int]) -> UsageError:
    """Return the error for a dimension that the inputs do not have.

    Args:
        name: the dimension.
        sizes: those that they have.
    """
    listed = and_more([f"{each} ({size})" for each, size in sizes.items()], _NAMES)
    return UsageError(
        f"the inputs have no dimension {name!r}",
        context=f"--vary {brief(name)}",
        hint=f"they have {listed}" if sizes else "they have none that could vary",
    )


def _inputs(specs: Sequence[str]) -> Iterator[tuple[int, str, tuple[int, ...], str]]:
    for place, text in enumerate(specs):
        match = _SPEC.fullmatch(text)
        if match:
            sizes = tuple(map(int, match["sizes"].split("x")))
            yield place, match["name"] or "", sizes, match["dtype"]


def _usual_name(name: str, sizes: Sequence[int], dtype: str, axis: int) -> str:
    """Return the usual name of an axis; empty where it has none."""
    rank = len(sizes)
    if axis == 0:
        return "batch"
    is_whole = "int" in dtype or dtype == "bool"
    if rank == 2:
        # A wave has many samples; features of a layer are no length.
        is_wave = "values" in name or "audio" in name or "wave" in name
        return "length" if is_whole or "mask" in name or is_wave else ""
    if rank == 3:
        return "length" if axis == (2 if _BANDS_FIRST.search(name) else 1) else ""
    return "" if is_whole else _SIDES.get(rank, {}).get(axis, "")
