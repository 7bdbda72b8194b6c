"""Audits a model for the Mac that this is, runs it observed on the Mac's GPU, and compares the two.  Imports no torch.

To try this on another machine, the variable ``OPCHECK_TEST_MAC`` puts an emulated Mac in the place of the GPU:
``2.13/15`` is torch 2.13 on macOS 15, ``2.13/15=2.9/15`` the same with the kernels of 2.9, so that the observation
contradicts the prediction.
"""

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import UsageError
from opcheck.data import targets
from opcheck.data.registrations import OpLists
from opcheck.device.observe import observed_run
from opcheck.device.observe.profiler_variables import installed_line
from opcheck.device.observe.recording import ObserveRequest
from opcheck.device.verify import Verification, verify
from opcheck.model.records import Report

VARIABLE = "OPCHECK_TEST_MAC"


class ThisMac(NamedTuple):
    """The Mac that a run is observed on."""

    torch: str
    macos: str
    #: the emulated Mac in its place, as ``ObserveRequest.stand_in`` writes it; empty: it is a real one
    stand_in: str = ""
    #: the emulated Mac whose kernels it has, where they are others
    kernels: str = ""


class Verified(NamedTuple):
    """What was predicted, what was observed, and how they compare."""

    prediction: Report
    observation: Report
    verification: Verification


def this_mac() -> ThisMac:
    """Return the torch release and the macOS of this machine.

    Raises:
        UsageError: it is no Mac, or torch is not installed.
    """
    stand_in, _, kernels = os.environ.get(VARIABLE, "").partition("=")
    if stand_in:
        torch, _, macos = stand_in.partition("/")
        return ThisMac(torch, macos, stand_in, kernels)
    if sys.platform != "darwin":
        raise UsageError(
            "a run can be observed only on a Mac, and this is none",
            context=f"{platform.system()} {platform.machine()}",
            hint="opcheck audit predicts here; on the Mac, run this command, or opcheck run and "
            "opcheck verify PREDICTION OBSERVATION",
        )
    return ThisMac(installed_line(), platform.mac_ver()[0])


def observe_model(request: CaptureRequest, mac: ThisMac, lists: OpLists) -> Report:
    """Run the model of a request on the Mac's GPU; return the report of its calls.

    Raises:
        CaptureError: there is no MPS device, or the process left nothing behind.
    """
    with tempfile.TemporaryDirectory(prefix="opcheck-") as folder:
        file = Path(folder, "model.json")
        file.write_bytes(msgspec.json.encode(request))
        program = ObserveRequest(
            program="opcheck.device.observe.child.model_program",
            is_module=True,
            arguments=(str(file),),
            cpu_fallback=request.target.cpu_fallback,
            stand_in=mac.stand_in,
            kernels=mac.kernels,
        )
        report = observed_run.run(program, lists).report
    return msgspec.structs.replace(report, model=request.model)


def verify_program(program: str, mac: ThisMac, lists: OpLists, *, cpu_fallback: bool) -> Verified:
    """Run a program emulated and observed on this Mac, and compare.

    Raises:
        CaptureError: a run left no report.
    """
    from opcheck.device.emulator import emulated_run
    from opcheck.device.emulator.emulation_request import RunRequest

    target = targets.target(mac.torch, mac.macos, lists)
    predicted = emulated_run.run(
        RunRequest(program=program, torch=str(target.torch), macos=str(target.macos), cpu_fallback=cpu_fallback)
    ).report
    observation = observed_run.run(
        ObserveRequest(program=program, cpu_fallback=cpu_fallback, stand_in=mac.stand_in, kernels=mac.kernels), lists
    ).report
    return Verified(predicted, observation, verify(predicted, observation, lists))


def verify_model(
    request: CaptureRequest, prediction: Report, mac: ThisMac, lists: OpLists, say: Callable[[str], None] | None = None
) -> Verified:
    """Observe the model of an audit on this Mac, and compare.

    Args:
        request: the request of the audit.
        prediction: its report.
        mac: this Mac, the target of the audit.
        lists: the op lists.
        say: called with each stage.

    Raises:
        CaptureError: the run could not be observed.
    """
    if say is not None:
        say(f"running {request.model} on {'an emulated Mac' if mac.stand_in else 'mps'}")
    observation = observe_model(request, mac, lists)
    return Verified(prediction, observation, verify(prediction, observation, lists))
