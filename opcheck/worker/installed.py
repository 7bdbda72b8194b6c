"""Checks that the installed torch can run the simulator."""

import importlib
import importlib.metadata
import sys

from opcheck.common.errors import CaptureError
from opcheck.common.versions import Version

#: The oldest release that was tested; CONTRIBUTING.md lists what the simulator takes from torch.
OLDEST = Version(2, 8)


def distribution_version(name: str) -> str:
    """Return the version of an installed distribution, without importing it; empty where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def require() -> None:
    """Import torch.

    Raises:
        CaptureError: there is none, it cannot be imported, or it is older than the simulation needs.
    """
    context = f"the Python that runs opcheck: {sys.executable}"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        raise CaptureError(
            "torch is not installed: a model cannot be run"
            if missing
            else f"the installed torch cannot be imported: {' '.join(str(error).split())}",
            context=context,
            hint="pip install 'opcheck[torch]'; opcheck op, scan, doctor and matrix need no torch",
        ) from error
    version = str(torch.__version__)
    if Version.parse(version) < OLDEST:
        raise CaptureError(
            f"the installed torch {version} is too old: a model is run with torch {OLDEST} or newer",
            context=context,
            hint=f"pip install 'torch>={OLDEST}'; --torch still chooses the release that is judged",
        )
