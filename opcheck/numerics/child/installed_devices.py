"""Lists the devices that this machine's torch has."""

import platform
from typing import Any

import torch

from opcheck.common.errors import UsageError
from opcheck.data.device_evidence import Machine
from opcheck.tracing.torch_private.backend import private_backend_name

#: The modules of torch that drive a device; a backend of another package is found by its name.
_KNOWN = ("cuda", "mps", "xpu", "mtia", "hpu", "npu")


def require(name: str) -> torch.device:
    """Return the device of that name.

    Raises:
        UsageError: torch has no such name, or this machine has no such device.
    """
    installed = f"torch {torch.__version__} on {platform.system()} {platform.machine()}"
    here = ", ".join(available())
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(
            f"torch has no device {name!r}", context=f"--device {name}; {installed}", hint=f"this machine has: {here}"
        ) from error
    if not _works(device):
        raise UsageError(
            f"this machine has no device {name!r}", context=f"--device {name}; {installed}", hint=f"it has: {here}"
        )
    return device


def available() -> tuple[str, ...]:
    """Return the types of devices that can be used here, the CPU first."""
    others = {*_KNOWN, private_backend_name()}
    return ("cpu", *sorted(name for name in others if _is_there(name)))


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def machine(device: torch.device) -> Machine:
    """Return the record of this machine with that device."""
    system, version = platform.system(), platform.release()
    if system == "Darwin":
        system, version = "macOS", platform.mac_ver()[0]
    return Machine(
        device=str(device),
        device_name=_name(device),
        os=system,
        os_version=version,
        arch=platform.machine(),
        torch=str(torch.__version__),
        commit=str(torch.version.git_version or ""),
        python=platform.python_version(),
    )


def _is_there(name: str) -> bool:
    module: Any = getattr(torch, name, None)
    try:
        return bool(module is not None and module.is_available())
    except (AttributeError, RuntimeError):
        return False


def _works(device: torch.device) -> bool:
    """Return whether a tensor can be made there: "meta" can, and computes nothing.

    torch takes any index of the CPU, and may take one of MPS, for its only device.
    """
    if device.type == "meta" or not (device.type == "cpu" or _is_there(device.type)):
        return False
    if device.type in {"cpu", "mps"} and device.index:
        return False
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        return False
    return True


def _name(device: torch.device) -> str:
    if device.type == "mps":
        get_name = getattr(torch.backends.mps, "get_name", None)  # 2.9
        return str(get_name()) if get_name else "Apple GPU"
    if device.type == "cpu":
        return platform.processor() or platform.machine()
    describe = getattr(getattr(torch, device.type), "get_device_name", None)
    return str(describe(device)) if describe else device.type
