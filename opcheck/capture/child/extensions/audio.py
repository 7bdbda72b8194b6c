"""Imports torchaudio where its compiled part cannot load, and declares its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from opcheck.capture.child.extensions import stub as extension_stub

if TYPE_CHECKING:
    from torch import Tensor

_LENGTHS = "Tensor targets, Tensor input_lengths, Tensor target_lengths"
_LAST = "Tensor(a!) last_in, Tensor(b!) last_out, Tensor(c!) output_waveform"
_WRITTEN = "(Tensor(a!), Tensor(b!), Tensor(c!))"
_OF_LOGITS = "Tensor targets, Tensor logit_lengths, Tensor target_lengths"
_OPTIONS = "int blank, float clamp, bool fused_log_softmax"
_WINDOWS = "Tensor input_signal_windows, Tensor a_coeff_flipped"

#: src/libtorchaudio (2.11): what its compiled part declares.
SCHEMAS = (
    f"forced_align(Tensor log_probs, {_LENGTHS}, int blank) -> (Tensor, Tensor)",
    f"_lfilter_core_loop({_WINDOWS}, Tensor(a!) padded_output_waveform) -> Tensor(a!)",
    f"_overdrive_core_loop(Tensor waveform, Tensor temp, {_LAST}) -> {_WRITTEN}",
    f"rnnt_loss_forward(Tensor logits, {_OF_LOGITS}, {_OPTIONS}) -> (Tensor, Tensor)",
)

#: A Library that is garbage-collected takes its declarations back.
_kept: list[torch.library.Library] = []


def prepare_torchaudio() -> bool:
    """Let ``import torchaudio`` work although its compiled part cannot load; call it first.

    The wheels for Linux are built for CUDA, and beside a torch built for the CPU they die at import.
    The schemas are declared here instead, with meta kernels.  Where the compiled part loads, nothing
    is done.

    Returns:
        Whether the declarations stand in for the compiled part.
    """
    if _kept:
        return True
    package = extension_stub.folder("torchaudio")
    extensions = [] if package is None else [*(package / "lib").glob("*torchaudio*.so")]
    if not extensions or hasattr(torch.ops.torchaudio, "forced_align"):
        return False
    if all(extension_stub.loads(extension) for extension in extensions):
        return False
    library = torch.library.Library("torchaudio", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    library.impl("forced_align", _forced_align, "Meta")
    library.impl("rnnt_loss_forward", _rnnt_loss_forward, "Meta")
    library.impl("_overdrive_core_loop", lambda *tensors: tensors[2:], "Meta")
    # Registered as on a Mac, so that the simulator's registry says what it calls; it never runs.
    for key in ("Meta", "CompositeExplicitAutograd"):
        library.impl("_lfilter_core_loop", lambda *tensors: tensors[2], key)
    # torchaudio/_extension/__init__.py asks these as soon as its files are there.
    own = torch.library.Library("_torchaudio", "FRAGMENT")
    own.define("cuda_version() -> int?")
    own.define("is_align_available() -> bool")
    own.impl("cuda_version", lambda: None, "CompositeExplicitAutograd")
    own.impl("is_align_available", lambda: True, "CompositeExplicitAutograd")
    _kept.extend((library, own))
    extension_stub.skip_loading(extensions)
    return True


def _forced_align(
    log_probs: Tensor, targets: Tensor, _lengths: Tensor, _target_lengths: Tensor, _blank: int
) -> tuple[Tensor, Tensor]:
    # forced_align/cpu/compute.cpp: a label for each step, and a copy of the probabilities
    return targets.new_empty(log_probs.shape[:2]), torch.empty_like(log_probs)


def _rnnt_loss_forward(logits: Tensor, *_others: object) -> tuple[Tensor, Tensor]:
    # rnnt/cpu/compute.cpp: a cost for each sequence, and the gradient of the logits
    return logits.new_empty(logits.shape[:1]), torch.empty_like(logits)
