"""The child process: ``python -m opcheck.compiler.worker`` tries the variants of a plan, each in a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opcheck.capture import worker
from opcheck.capture.protocol import Answered

if TYPE_CHECKING:
    from opcheck.capture.protocol import Say
    from opcheck.capture.request import CaptureRequest


def _compile() -> worker.Work:
    from opcheck.compiler import run  # noqa: PLC0415 - importing torch is the first thing that can fail

    def work(request: CaptureRequest, say: Say) -> Answered:
        return Answered(content=msgspec.Raw(msgspec.json.encode(run.run(request, say))))

    return work


if __name__ == "__main__":
    worker.end(worker.main(_compile))
