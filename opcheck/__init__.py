"""Predict what a PyTorch model does on Apple's GPU (MPS), on any machine.

``audit`` predicts the run of a model, ``emulate`` runs a block of a program as on a Mac, and ``Report`` is what both
return. The other names are the records of a report and the words that their fields hold.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.api import audit
    from opcheck.common.vocabulary import FallbackKind, Phase, Severity, Status
    from opcheck.device.emulator.child.session import emulate
    from opcheck.model.records import CallGroup, Evidence, Finding, GroupLocation, OpCall, Report, TensorSpec, Verdict

    __version__: str

__all__ = [
    "CallGroup",
    "Evidence",
    "FallbackKind",
    "Finding",
    "GroupLocation",
    "OpCall",
    "Phase",
    "Report",
    "Severity",
    "Status",
    "TensorSpec",
    "Verdict",
    "__version__",
    "audit",
    "emulate",
]

#: The names that are Literals of vocabulary.py: the texts that a field may hold.
_WORDS = ("FallbackKind", "Phase", "Severity", "Status")
#: The module that has each name, and its name there. ``emulate`` takes as long as importing torch does.
_LAZY = {
    "audit": ("opcheck.api", "audit"),
    "emulate": ("opcheck.device.emulator.child.session", "emulate"),
    "__version__": ("opcheck.common.tool", "VERSION"),
    **{name: ("opcheck.model.records", name) for name in __all__ if name[0].isupper() and name not in _WORDS},
    **{name: ("opcheck.common.vocabulary", name) for name in _WORDS},
}


def __dir__() -> list[str]:
    """Return the names of the Python API, which a shell completes."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a name of the Python API when it is first used."""
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    message = f"module 'opcheck' has no attribute {name!r}"
    raise AttributeError(message)
