"""Prepares a process to build models: imports torch and the libraries as on a Mac."""

from __future__ import annotations

import gc
import importlib
import sys

from opcheck.capture.child.extensions import prepare_torchvision
from opcheck.capture.child.loading.libraries import find
from opcheck.capture.child.run import run
from opcheck.capture.request import MODES, CaptureRequest
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.data.registrations import load
from opcheck.features.sweep.records import LIBRARIES
from opcheck.simulator.real_device import out_of_reach
from opcheck.simulator.visible.public_names import names_of_the_target
from opcheck.simulator.visible.surface import mps_backend
from opcheck.worker import installed
from opcheck.worker.protocol import silent

#: transformers checks once, at import: whether there is an MPS device.
_MACOS = Version(MACOS_MAJORS[-1])


def prepare() -> None:
    """Import torch, read the op lists, declare torchvision's operators.

    Raises:
        CaptureError: torch is not installed, or too old.
    """
    installed.require()
    load()
    prepare_torchvision()
    # No model needs it, and a torchaudio for another torch stops the import of transformers.
    sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]


def preload(library: str, name: str = "", target: Target | None = None) -> None:
    """Import a library and what it needs for the class of this name, so that forked children have it.

    Args:
        library: the library; any other package is left to the children.
        name: the class.
        target: the Mac that the library sees; children for targets that give its questions other answers need a
            process of their own.  None: the newest release.

    Raises:
        ModelLoadError: it is not installed, or cannot be imported.
    """
    if library not in LIBRARIES:
        return
    target = target or Target(torch=Version.parse(load().releases[-1].line), macos=_MACOS)
    with out_of_reach(), mps_backend(target), names_of_the_target():
        module = find(library, f"{library}:{name}")
        getattr(module, name, None)


def warm() -> None:
    """Run some layers in both modes, so that torch imports and initialises what it loads on first use."""
    importlib.import_module("torch._dynamo")  # else each child would import it for itself
    lists = load()
    for mode in MODES:
        run(
            CaptureRequest(
                model="torch.nn:TransformerEncoderLayer",
                torch=lists.releases[-1].line,
                macos=str(_MACOS),
                config={"d_model": 8, "nhead": 2},
                inputs=("2x4x8:float32",),
                mode=mode,
            ),
            silent,
        )


def settle() -> None:
    """Exclude present objects from garbage collection, so that children neither scan nor copy them."""
    gc.collect()
    gc.freeze()
