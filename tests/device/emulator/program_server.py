"""Runs programs as ``opcheck run`` does, each in a fork of one process that has imported torch.

Reads a line of JSON for each program from stdin, and answers with a line when it has ended.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    """Serve until stdin ends."""
    if sys.platform == "win32":
        raise OSError("Windows has no fork")
    # Each program would import them again: torch, and what torch itself imports at the first composite.
    import torch
    import torch._dynamo

    import opcheck
    from opcheck.device.emulator.child import emulated_program, session  # noqa: F401

    # The same holds for what the first emulation reads and computes.
    with opcheck.emulate(torch="2.13", macos="15"):
        torch.nn.Linear(2, 2).to("mps")(torch.ones(2, device="mps")).sum().item()
    # The collector of a fork then passes over the objects of torch.
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        process = os.fork()
        if not process:
            _run(job, emulated_program.main)
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(job: dict[str, str], child: Callable[[Path], int]) -> None:
    code = 70
    try:
        os.chdir(job["cwd"])
        file = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = child(Path(job["request"]))
    except BaseException:  # noqa: BLE001 - the fork must not go on as the server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
