"""Operators of torchvision and torchaudio."""

from __future__ import annotations

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.operators.operator import Calls, Given, Operator
from opcheck.simulator.dispatch.unbacked_values import MOST_BOXES, Guess
from opcheck.simulator.target_reads import TargetQueries, is_before


def _guess_kept_boxes(arguments: Given, _keep: int) -> Guess:
    count = arguments["dets"].shape[0]
    kept = min(count, MOST_BOXES)
    assumed = "as if no box were suppressed" if kept == count else f"as if {kept:,} boxes were kept"
    return Guess((torch.arange(kept),), assumed)


def _filter_loop(_given: Given, ask: TargetQueries) -> Calls | None:
    # src/libtorchaudio/lfilter.cpp, ``lfilter_core_generic_loop`` (torchaudio 2.9 to 2.11): these
    # and copy_ for each sample.  Earlier ones had no generic loop in C++.
    if ask(is_before, Version(2, 9)):
        return None
    return ("aten::as_strided", "aten::bmm", "aten::sub.Tensor")


OPERATORS = (
    Operator(("torchvision::nms", "torchvision::qnms"), unbacked=_guess_kept_boxes),
    Operator(("torchaudio::_lfilter_core_loop",), body=_filter_loop),
)
