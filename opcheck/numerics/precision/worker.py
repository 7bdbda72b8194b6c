"""The child process: ``python -m opcheck.numerics.precision.worker`` runs a model beside float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcheck.capture.protocol import Compared, Message
from opcheck.capture.worker import end, main

if TYPE_CHECKING:
    from opcheck.capture.protocol import Say
    from opcheck.capture.request import CaptureRequest
    from opcheck.capture.worker import Work


def _compare() -> Work:
    from opcheck.numerics.precision import run  # noqa: PLC0415 - importing torch is the first thing that can fail

    def work(request: CaptureRequest, say: Say) -> Message:
        return Compared(precision=run.compare(request, say))

    return work


if __name__ == "__main__":
    end(main(_compare))
