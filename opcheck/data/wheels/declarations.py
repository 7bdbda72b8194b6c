"""The overloads that the library declares (``m.def``) in the ``aten`` namespace."""

from __future__ import annotations

import re

from opcheck.data.wheels.image import Image
from opcheck.data.wheels.machine_code import Address, run

#: torch/library.h: TORCH_LIBRARY(aten, m) (the generated RegisterSchema.cpp) and
#: TORCH_LIBRARY_FRAGMENT(aten, m) (aten/src/ATen/native/RNN.cpp: quantized_lstm and others).
_BLOCKS = ("TORCH_LIBRARY_init_aten", "TORCH_LIBRARY_FRAGMENT_init_aten_")
_SCHEMA = re.compile(r"(?:aten::)?(\w+(?:\.\w+)?)\(.*->")


def find_declared(image: Image) -> frozenset[str]:
    """Return every ``aten`` overload whose schema string a declaring block refers to."""
    texts = (
        image.string(event.value)
        for block in _BLOCKS
        for address, _ in image.matching(block)
        for event in run(image.code(address), address)
        if isinstance(event, Address)
    )
    return frozenset(
        f"aten::{match[1]}" for text in texts if text and (match := _SCHEMA.match(text))
    )
