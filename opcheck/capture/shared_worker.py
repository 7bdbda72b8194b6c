"""The child process: ``python -m opcheck.capture.shared_worker`` captures a model for several targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from opcheck.capture import worker
from opcheck.capture.protocol import Answered
from opcheck.common.versions import Target

if TYPE_CHECKING:
    from opcheck.capture.protocol import Say
    from opcheck.capture.request import CaptureRequest


def _capture() -> worker.Work:
    from opcheck.capture import shared  # noqa: PLC0415 - importing torch is the first thing that can fail

    def work(request: CaptureRequest, say: Say) -> Answered:
        targets = msgspec.convert(request.plan["targets"], tuple[Target, ...])
        captures = shared.captures(request, targets, say)
        return Answered(content=msgspec.Raw(msgspec.json.encode(captures)))

    return work


if __name__ == "__main__":
    worker.end(worker.main(_capture))
