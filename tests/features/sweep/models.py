"""Models that a sweep has to live with."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch


def hangs() -> torch.nn.Module:
    """Its constructor does not end, and takes no notice of a signal."""
    if sys.platform == "win32":
        raise OSError("Windows has no timers that raise")
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def eats() -> torch.nn.Module:
    """It asks for more memory than it may take."""
    kept = [bytearray(1 << 28) for _ in range(64)]
    return torch.nn.Linear(len(kept), 1)


def kills() -> torch.nn.Module:
    """It ends the process that started it."""
    if sys.platform == "win32":
        raise OSError("Windows has no SIGKILL")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
    return torch.nn.Linear(1, 1)


def stops() -> torch.nn.Module:
    """It stops the process that started it, which then answers no more."""
    if sys.platform == "win32":
        raise OSError("Windows has no SIGSTOP")
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(60)
    return torch.nn.Linear(1, 1)


def dies() -> torch.nn.Module:
    """It ends its own process."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return torch.nn.Linear(1, 1)


def works() -> torch.nn.Module:
    """Nothing is wrong with it."""
    return torch.nn.Linear(4, 4)
