"""Programs that a worker's process runs and that do what no model should; each is what its outcome is to the parent."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from opcheck.model.records import Record
from opcheck.worker.protocol import Say


class Program(Record, frozen=True, kw_only=True):
    name: str
    #: where the program leaves the number of a process that it starts
    file: str = ""
    filler: str = ""


_BLOCKED = "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)"
_LEAVE = "leave(); time.sleep(600)"

#: By outcome and name.  ``write`` writes to every descriptor that may be the pipe of the answers.
PROGRAMS = {
    "garbled": {
        "text": "write(b'hello\\n')",
        "random bytes": "write(bytes(range(256)) * 9 + b'\\n')",
        "null characters": "write(bytes(100) + b'\\n')",
        "an empty line": "write(b'\\n')",
        "another JSON": 'write(b\'{"type": "other"}\\n\')',
        "a JSON null": "write(b'null\\n')",
        "an answer": 'write(b\'{"type": "answered", "content": {"text": "forged"}}\\n\')',
        "an answer with another secret": (
            'write(b"0" * 32 + b\'{"type": "answered", "content": {"text": "forged"}}\\n\')'
        ),
        "a failure": 'write(b\'{"type": "failure", "error": "UsageError", "message": "forged"}\\n\')',
        "a failure that names no error": (
            'write(b\'{"type": "failure", "error": "annotations", "message": "forged"}\\n\')'
        ),
        "a stage": 'write(b\'{"type": "stage", "text": "forged", "seconds": 1e9}\\n\')',
        "a stage with signals blocked": (
            f'write(b\'{{"type": "stage", "text": "forged", "seconds": 1e9}}\\n\'); {_BLOCKED}'
        ),
        "deep JSON": "write(b'[' * 50000 + b'\\n')",
        "half a line": "write(b'x')",
        "a line without an end": "\nwhile True: write(b'x' * 65536)",
        "a line of many threads": ("[threading.Thread(target=write, args=(b'x\\n',)).start() for _ in range(9)]"),
        "a copy of the pipe": "[os.dup(n) for n in range(3, 9) if there(n)]; write(b'x\\n')",
        "a fork's line": "\nif os.fork() == 0:\n    write(b'x\\n'); os._exit(0)\ntime.sleep(600)",
        "a stage before its time": "say('x', seconds=-1.0)",
        "a broken encoder": "import msgspec; msgspec.json.encode = lambda *_: b'x'",
    },
    "died": {
        "exit 0": "os._exit(0)",
        "exit 3": "os._exit(3)",
        "a segmentation fault": "import faulthandler; faulthandler._sigsegv()",
        "an abort": "os.abort()",
        "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
        "a real-time signal": "os.kill(os.getpid(), signal.SIGRTMAX)",
        "exec": "os.execv('/bin/true', ['true'])",
        "a closed pipe": "os.closerange(3, 64)",
        "a null device for a pipe": ("n = os.open(os.devnull, 1)\nfor m in range(3, 9):\n    if m != n: os.dup2(n, m)"),
        "another process id": "os.getpid = lambda: 1",
        "a killed group": "os.killpg(0, signal.SIGKILL)",
        "the parent of a fork": (
            "\nif os.fork() == 0:\n    os.kill(os.getppid(), signal.SIGKILL); os._exit(0)\ntime.sleep(600)"
        ),
    },
    "late": {
        "sleeps": "time.sleep(600)",
        "blocks all signals": _BLOCKED,
        "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
        "is stopped by a fork": (
            "\nif os.fork() == 0:\n    os.kill(os.getppid(), signal.SIGSTOP); time.sleep(600)\ntime.sleep(600)"
        ),
        "asks for a long stage": f"say('more', seconds=1e9); {_BLOCKED}",
        "waits for itself": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "leaves a daemon": _LEAVE,
        "leaves another session": f"\nif os.fork() == 0:\n    os.setsid(); {_LEAVE}\ntime.sleep(600)",
    },
    "failed": {
        "SystemExit": "raise SystemExit(0)",
        "KeyboardInterrupt": "raise KeyboardInterrupt",
        "GeneratorExit": "raise GeneratorExit",
        "an error without a text": (
            "\nclass Error(BaseException):\n    def __str__(self): raise ValueError\nraise Error"
        ),
        "all memory": "x = [bytearray(1 << 28) for _ in range(4096)]",
        "endless recursion": "\ndef f(): f()\nf()",
    },
    "answered": {
        "much output": "os.write(1, b'x' * 1000000); os.write(2, b'y' * 1000000)",
        "closed outputs": "os.close(1); os.close(2); sys.stdout.close(); sys.stderr.close()",
        "no variables": "os.environ.clear()",
        "threads that outlive": ("[threading.Thread(target=time.sleep, args=(600,)).start() for _ in range(9)]"),
        "a fork that returns, too": "os.fork()",
        "a session of its own": "\nwith contextlib.suppress(OSError): os.setsid()",
        "a daemon": "leave()",
        "handlers of signals": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 14, 15)]",
    },
}
OUTCOMES = {name: (kind, code) for kind, group in PROGRAMS.items() for name, code in group.items()}


def write(content: bytes) -> None:
    for descriptor in range(3, 16):
        with contextlib.suppress(OSError):
            os.write(descriptor, content)


def there(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


def answer(program: Program, say: Say) -> str:
    """Run the program; nothing of it can be the text that is returned."""

    def leave() -> None:
        """Leave a process in a session of its own that holds all pipes open."""
        if sys.platform == "win32":
            raise NotImplementedError
        file = Path(program.file)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                part = file.with_suffix(".part")
                part.write_text(str(os.getpid()), encoding="utf-8")
                part.rename(file)
                time.sleep(600)
            os._exit(0)
        while not file.exists():
            pass

    if program.name:
        names = "contextlib, os, signal, sys, threading, time"
        exec(  # noqa: S102 - the programs of the table above
            f"import {names}\n{OUTCOMES[program.name][1]}", {"write": write, "there": there, "say": say, "leave": leave}
        )
    return "own answer"
