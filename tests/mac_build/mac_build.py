"""A torch of Linux that looks like a Mac's: what a Mac's build registers is there, and nothing of it works.

``OPCHECK_TEST_MAC_BUILD=1 pytest ...`` (see conftest.py) tries with it that a simulation takes the same ways on a Mac,
and never reaches the GPU.  The folder in the variable, which conftest.py makes, holds ``names.json`` (the overloads with
a kernel in the installed release), ``guard.so`` (a device guard) and ``reached.log`` (what was called).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "OPCHECK_TEST_MAC_BUILD"
#: What a Mac answers to questions that touch no GPU; torch itself asks them when it is imported or seeded.
ANSWERS: dict[str, Any] = {
    "_mps_is_available": True,
    "_mps_is_on_macos_or_newer": True,
    "_mps_is_in_bad_fork": False,
    "_accelerator_getDeviceIndex": 0,
    "_accelerator_isAllocatorInitialized": False,
    "_accelerator_getAllocatorSettings": "",
    "_accelerator_setAllocatorSettings": None,
}
#: Bindings that a Mac's build has beside those of Linux (torch/csrc/mps/Module.cpp, 2.13).
BINDINGS = ("_mps_compileShader", "_mps_get_core_count", "_mps_get_name", "_mps_loadMetalllib", "_mps_isCapturing",
            "_mps_isCaptureEnabled", "_mps_startCapture", "_mps_stopCapture", "_mps_host_alias_storage")  # fmt: skip
#: The number of the device in C++ (torch/headeronly/core/DeviceType.h).
MPS = 13
GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(MPS, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::MPS>);
"""

_libraries: list[Any] = []


class ReachedError(BaseException):
    """Something of the real device was reached; no ``except Exception`` hides it."""


def _reached(what: str) -> Callable[..., Any]:
    def reached(*_args: Any, **_kwargs: Any) -> Any:
        frame = sys._getframe(1)
        line = f"{what} from {frame.f_code.co_filename}:{frame.f_lineno}\n"
        with Path(os.environ[VARIABLE], "reached.log").open("a", encoding="utf-8") as log:
            log.write(line)
        raise ReachedError(line)

    return reached


def _answers(value: Any) -> Callable[..., Any]:
    def answer(*_args: Any, **_kwargs: Any) -> Any:
        return value

    return answer


def install(torch: Any) -> None:
    """Register what a Mac's build registers, once a process: this module may be loaded under two names."""
    if getattr(torch, "made_like_a_mac", False):
        return
    torch.made_like_a_mac = True
    folder = Path(os.environ[VARIABLE])
    for key, names in json.loads((folder / "names.json").read_text()).items():
        kernels = torch.library.Library("aten", "IMPL", key)
        _libraries.append(kernels)
        for name in names:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
                kernels.impl(name, _reached(name))
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(_reached("the fallback of the backend"), "MPS")
    _libraries.extend((fallback, ctypes.CDLL(str(folder / "guard.so"))))
    torch._C._has_mps = True
    prefixes = ("_mps_", "_accelerator_")
    names = {name for name in dir(torch._C) if name.startswith(prefixes)} | {*BINDINGS}
    for name in names:
        known = name in ANSWERS
        setattr(torch._C, name, _answers(ANSWERS[name]) if known else _reached(f"torch._C.{name}"))
    # torch.manual_seed seeds the generator of the device, too, which is an object of the host.
    torch._C._mps_get_default_generator = _answers(torch.Generator())
    stream = torch.Stream(stream_id=0, device_index=0, device_type=MPS)
    torch._C._accelerator_getStream = _answers(stream)
    for name in ("_accelerator_getAccelerator", "_get_accelerator"):
        setattr(torch._C, name, _answers(torch.device("mps")))


def prepare(folder: Path) -> None:
    """Write what ``install`` reads."""
    import importlib.metadata
    import importlib.util

    from opcheck.data.registrations import load

    release = ".".join(importlib.metadata.version("torch").split(".")[:2])
    kinds = {"kernel", "cpu_fallback", "error_stub", "python_kernel"}
    names = {
        key: [name for name, kind in load().operators(release, key).items() if kind in kinds]
        for key in ("MPS", "SparseMPS", "SparseCsrMPS")
    }
    (folder / "names.json").write_text(json.dumps(names))
    (folder / "guard.cpp").write_text(GUARD)
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    compiler = ["g++", "-std=c++20", "-shared", "-fPIC", "-w", f"-I{torch / 'include'}", "guard.cpp"]
    libraries = [f"-L{torch / 'lib'}", "-lc10", "-o", "guard.so"]
    subprocess.run([*compiler, *libraries], cwd=folder, check=True)
    (folder / "reached.log").touch()


def enter(folder: Path) -> None:
    """Let this process and all that it starts have such a build."""
    prepare(folder)
    here = str(Path(__file__).parent)
    os.environ[VARIABLE] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    sys.path.insert(0, here)
    if "torch" in sys.modules:  # a plugin of pytest has imported it
        install(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, importlib.import_module("sitecustomize").AfterTorch())


def reached() -> list[str]:
    """Return what was called of the real device so far."""
    return Path(os.environ[VARIABLE], "reached.log").read_text(encoding="utf-8").splitlines()
