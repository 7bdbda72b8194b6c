"""The child process: ``python -m opcheck.numerics.compare.worker`` runs a model on a device beside float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opcheck.capture import worker
from opcheck.capture.protocol import Answered

if TYPE_CHECKING:
    from opcheck.capture.protocol import Say
    from opcheck.capture.request import CaptureRequest


def _compare() -> worker.Work:
    from opcheck.numerics.compare import run  # noqa: PLC0415 - importing torch is the first thing that can fail

    def work(request: CaptureRequest, say: Say) -> Answered:
        return Answered(content=msgspec.Raw(msgspec.json.encode(run.compare(request, say))))

    return work


if __name__ == "__main__":
    worker.end(worker.main(_compare))
