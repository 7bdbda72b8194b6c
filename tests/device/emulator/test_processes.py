"""The program's processes: macOS starts them by spawn, and each of them is on the emulated Mac."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opcheck.common.errors import CaptureError
from opcheck.device.emulator import emulated_run
from opcheck.device.emulator.emulation_request import RunRequest
from opcheck.device.emulator.processes import find_lacking_global

_HEAD = """import functools
import os
import sys
import torch
import torch.multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from torch.utils.data import DataLoader, Dataset, TensorDataset
data = TensorDataset(torch.arange(8.0))
class Squares(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.tensor([float(i * i)])
def double(x, factor=2):
    return x * factor
def on_mps(number, queue):
    assert __name__ == "__mp_main__" and torch.backends.mps.is_available()
    queue.put(torch.full((2,), float(number), device="mps").sum().item())
settings, sizes = None, {}
class Scaled(Squares):
    def __getitem__(self, i):
        return super().__getitem__(i) * later
class OnMps(Squares):
    def __getitem__(self, i):
        return torch.ones(1, device="mps")
def scale(number):
    return number * settings["scale"]
def look_up(name):
    return sizes[name]
def put(queue):
    queue.put(1)
def raises_on_mps(number):
    torch.ones(2, device="mps").double()
def init(number):
    assert torch.utils.data.get_worker_info().id == number
"""
_GUARD = 'if __name__ == "__main__":\n    '
_LOOP = "\n        print(x[0].to('mps').sum().item())"
_NOT_PICKLED = "OC126"
_UNGUARDED = "before the current process has finished its bootstrapping phase"


class Expected(NamedTuple):
    """What a Mac makes of a program."""

    program: str
    #: the rules of the findings, and a part of what the program writes, or of the report
    rules: tuple[str, ...] = ()
    text: str = ""


#: Programs that fail on a Mac.
FAIL = {
    "a loader without a guard": Expected(
        "for x in DataLoader(data, num_workers=1):\n    x[0].to('mps')",
        ("OC126", "OC120"),
        _UNGUARDED,
    ),
    "a pool without a guard": Expected(
        "with mp.Pool(1) as pool:\n    print(pool.map(double, [1]))", ("OC126", "OC120"), "again and again"
    ),
    "a process without a guard": Expected(
        "torch.ones(1, device='mps')\np = mp.Process(target=double, args=(1,))\np.start()\np.join()", ("OC126",), _UNGUARDED
    ),
    "an executor without a guard": Expected(
        "with ProcessPoolExecutor(1) as e:\n    print(e.submit(double, 1).result())",
        ("OC126", "OC120"),
        "BrokenProcessPool",
    ),
    "a lambda to collate": Expected(
        f"{_GUARD}for x in DataLoader(data, num_workers=2, collate_fn=lambda b: b):{_LOOP}",
        ("OC126",),
        "Can't pickle <function <lambda>",
    ),
    "a local dataset": Expected(
        "def main():\n    class Local(Squares):\n        pass\n"
        f"    for x in DataLoader(Local(), num_workers=1):{_LOOP}\n{_GUARD}main()",
        ("OC126",),
        "main.<locals>.Local",
    ),
    "a local function to each worker": Expected(
        "def main():\n    def start(i):\n        pass\n"
        f"    for x in DataLoader(data, num_workers=1, worker_init_fn=start):{_LOOP}\n{_GUARD}main()",
        ("OC126",),
        "main.<locals>.start",
    ),
    "a dataset on mps": Expected(
        f"{_GUARD}d = TensorDataset(torch.ones(4, device='mps'))\n"
        f"    for x in DataLoader(d, num_workers=1):{_LOOP}",
        ("OC126",),
        "_share_filename_: only available on CPU",
    ),
    "a function below the guard": Expected(
        f"{_GUARD}def late(x):\n        print(x)\n"
        "    torch.ones(1, device='mps')\n    p = mp.Process(target=late, args=(1,))\n    p.start()\n    p.join()",
        ("OC126",),
        "Can't get attribute 'late' on <module '__mp_main__'",
    ),
    "a call in a process": Expected(
        f"{_GUARD}torch.ones(1, device='mps')\n    mp.spawn(raises_on_mps, nprocs=1)",
        ("OC105", "OC120"),
        "Cannot convert a MPS Tensor to float64",
    ),
    "a global of the main process in a pool": Expected(
        f"{_GUARD}settings = {{'scale': 2}}\n    torch.ones(1, device='mps')\n"
        "    with mp.Pool(1) as pool:\n        print(pool.map(scale, [1]))",
        ("OC126", "OC120"),
        "a spawned process lacks settings, which the main process sets",
    ),
    "a table that the main process fills": Expected(
        f"{_GUARD}sizes['a'] = 1\n    torch.ones(1, device='mps')\n"
        "    p = mp.Process(target=look_up, args=('a',))\n    p.start()\n    p.join()",
        ("OC126",),
        "a spawned process lacks sizes, which the main process sets",
    ),
    "a global of the main process in a loader": Expected(
        f"{_GUARD}later = 2\n    for x in DataLoader(Scaled(), num_workers=1):{_LOOP}",
        ("OC126", "OC120"),
        "a spawned process lacks later, which the main process sets",
    ),
    "a dataset that computes on mps": Expected(
        f"{_GUARD}for x in DataLoader(OnMps(), num_workers=1):{_LOOP}",
        ("OC126", "OC120"),
        "only available on CPU; what waits for it waits without end",
    ),
    "a lambda to an executor": Expected(
        f"{_GUARD}torch.ones(1, device='mps')\n"
        "    with ProcessPoolExecutor(1) as e:\n        print(list(e.map(lambda x: x, [1])))",
        ("OC126",),
        "a Mac raises this, too: PicklingError",
    ),
    "a queue to a pool": Expected(
        f"{_GUARD}torch.ones(1, device='mps')\n    with mp.Pool(1) as pool:\n        pool.map(put, [mp.Queue()])",
        ("OC126",),
        "Queue objects should only be shared between processes through inheritance",
    ),
}  # fmt: skip

#: ... and programs that do not.
PASS = {
    "a loader with a guard": Expected(f"{_GUARD}for x in DataLoader(data, num_workers=2):{_LOOP}", text="7.0"),
    "no workers": Expected("for x in DataLoader(data, num_workers=0, collate_fn=lambda b: b[0]):\n    print(x[0].to('mps'))"),
    "the start method": Expected(
        f"{_GUARD}assert mp.get_start_method() == 'spawn' == mp.get_context().get_start_method()\n"
        "    mp.set_start_method('fork', force=True)\n    assert mp.get_start_method() == 'fork'\n"
        "    print(torch.ones(1, device='mps'))"
    ),
    "a process on mps": Expected(
        f"{_GUARD}q = mp.Queue()\n    p = mp.Process(target=on_mps, args=(3, q))\n    p.start()\n"
        "    print(q.get())\n    p.join()\n    assert p.exitcode == 0\n    torch.ones(1, device='mps')",
        text="6.0",
    ),
    "a pool": Expected(
        f"{_GUARD}with mp.Pool(1) as pool:\n        x = pool.map(double, [1, 2])\n"
        "    print(torch.tensor(x).to('mps').sum().item())",
        text="6",
    ),
    "an executor with a tensor": Expected(
        f"{_GUARD}with ProcessPoolExecutor(1) as e:\n        x = e.submit(double, torch.ones(3)).result()\n"
        "    print(x.to('mps').sum().item())",
        text="6.0",
    ),
    "spawn": Expected(f"{_GUARD}mp.spawn(double, nprocs=1)\n    print(torch.ones(1, device='mps'))"),
    "persistent workers and a partial": Expected(
        f"{_GUARD}g = torch.Generator().manual_seed(1)\n"
        "    loader = DataLoader(Squares(), num_workers=1, persistent_workers=True, worker_init_fn=init, generator=g,\n"
        "                        shuffle=True, collate_fn=functools.partial(torch.stack, dim=0))\n"
        "    print([sum(x.to('mps').sum().item() for x in loader) for _ in range(2)])",
        text="[14.0, 14.0]",
    ),
    "the fork server": Expected(
        f"{_GUARD}ctx = mp.get_context('forkserver')\n    q = ctx.Queue()\n"
        "    p = ctx.Process(target=on_mps, args=(2, q))\n    p.start()\n    print(q.get())\n    p.join()\n"
        "    torch.ones(1, device='mps')",
        text="4.0",
    ),
    "a lambda to an executor that the program handles": Expected(
        f"{_GUARD}try:\n        with ProcessPoolExecutor(1) as e:\n            list(e.map(lambda x: x, [1]))\n"
        "    except Exception:\n        print(torch.ones(3, device='mps').sum().item())",
        text="3.0",
    ),
    "a global that fork keeps": Expected(
        f"{_GUARD}settings = {{'scale': 2}}\n    with mp.get_context('fork').Pool(1) as pool:\n"
        "        print(pool.map(scale, [3]), torch.ones(1, device='mps'))",
        text="[6]",
    ),
    "fork, on the CPU": Expected(
        f"{_GUARD}for x in DataLoader(data, num_workers=1, multiprocessing_context='fork', collate_fn=lambda b: b[0]):"
        "\n        print(x[0].to('mps'))"
    ),
}  # fmt: skip

#: Those that start no second Python are quick.
_QUICK = {"a lambda to collate", "a dataset on mps", "a local dataset", "a local function to each worker", "no workers",
          "the start method", "fork, on the CPU"}  # fmt: skip


def cases(table: dict[str, Expected]) -> list[Any]:
    return [pytest.param(table[name], id=name, marks=() if name in _QUICK else pytest.mark.slow) for name in table]


class Ended(NamedTuple):
    code: int
    written: str
    report: dict[str, Any]


def run(tmp_path: Path, program: str, *flags: str, head: str = _HEAD) -> Ended:
    (tmp_path / "program.py").write_text(f"{head}{program}\n", encoding="utf-8")
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "opcheck", "run", "--torch=2.13", "--macos=15", "-o", str(file)]
    ended = subprocess.run(
        [*command, *flags, "program.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    report = json.loads(file.read_text()) if file.exists() else {}
    return Ended(ended.returncode, ended.stdout + ended.stderr, report)


@pytest.mark.parametrize("expected", cases(FAIL))
def test_what_spawn_does_not_start_fails(tmp_path: Path, expected: Expected) -> None:
    ended = run(tmp_path, expected.program)
    assert ended.code == 1, ended.written
    assert ended.report["headline"] == "fails"
    found = {finding["rule"] for finding in ended.report["findings"] if finding["severity"] != "note"}
    assert set(expected.rules) == found, ended.written
    texts = " ".join((ended.written, json.dumps(ended.report))).split()
    assert expected.text in " ".join(texts)


@pytest.mark.parametrize("expected", cases(PASS))
def test_what_spawn_starts_runs(tmp_path: Path, expected: Expected) -> None:
    ended = run(tmp_path, expected.program)
    assert ended.code == 0, ended.written
    assert ended.report["headline"] == "runs natively"
    assert expected.text in ended.written


@pytest.mark.slow
def test_calls_of_processes_are_in_the_report(tmp_path: Path) -> None:
    ended = run(tmp_path, f"{_GUARD}q = mp.Queue()\n    mp.Process(target=on_mps, args=(3, q)).start()\n    q.get()")
    assert "aten::sum" in [group["op"] for group in ended.report["calls"]]
    assert ended.report["totals"]["native"] == ended.report["totals"]["calls"] > 1


def test_no_finding_says_that_nothing_reached_mps_where_a_process_computed_there(tmp_path: Path) -> None:
    start = f"{_GUARD}q = mp.Queue()\n    p = mp.Process(target={{}})\n    p.start()\n    p.join()"
    rules = [
        [finding["rule"] for finding in run(tmp_path, start.format(target)).report["findings"]]
        for target in ("on_mps, args=(3, q)", "print")
    ]
    assert rules == [[], ["OC120"]]


_LACKING = "def use():\n    return {}\n"


@pytest.mark.parametrize(
    ("module", "raises", "name"),
    [
        ({}, "later", "later"),
        ({"later": None}, "later.scale", "later"),
        ({"later": None}, "later[0]", "later"),
        ({"later": {}}, "later['a']", "later"),
        # It has the global, or the error is about another value.
        ({"later": {"b": 1}}, "later['a']", ""),
        ({"later": None}, "(later, 1 / 0)", ""),
        ({}, "int('a') or later", ""),
        ({}, "other", ""),
    ],
)
def test_a_global_that_the_main_process_sets_is_named_where_its_lack_raises(
    module: dict[str, Any], raises: str, name: str
) -> None:
    spawned = {"__name__": "__mp_main__", **module}
    exec(_LACKING.format(raises), spawned)  # noqa: S102
    with pytest.raises((NameError, TypeError, AttributeError, LookupError, ArithmeticError, ValueError)) as caught:
        spawned["use"]()
    assert find_lacking_global(caught.value, {"later"}) == name
    assert not find_lacking_global(caught.value, set())


def test_mps_in_a_forked_process_is_not_known(tmp_path: Path) -> None:
    program = "if os.fork() == 0:\n    torch.ones(2, device='mps').sum()\n    os._exit(0)\nos.wait()\ntorch.ones(1, device='mps')"
    ended = run(tmp_path, program)
    assert (ended.code, ended.report["headline"]) == (3, "could not tell")
    assert "a forked process computed on mps" in json.dumps(ended.report["findings"])


def test_a_run_whose_fork_alone_computed_on_mps_neither_broke_off_nor_moved_nothing(tmp_path: Path) -> None:
    ended = run(tmp_path, "if os.fork() == 0:\n    torch.ones(2, device='mps').sum()\n    os._exit(0)\nos.wait()")
    assert (ended.code, ended.report["headline"]) == (3, "could not tell")
    assert [finding["message"].partition(":")[0] for finding in ended.report["findings"]] == [
        "a forked process computed on mps"
    ]
    assert ended.report["capture"]["complete"] is True


def test_python_in_a_subprocess_is_not_followed_and_the_report_says_so(tmp_path: Path) -> None:
    program = "import subprocess\nsubprocess.run([sys.executable, '-c', '1'])\nprint(torch.ones(1, device='mps'))"
    ended = run(tmp_path, program)
    assert any("nothing is emulated in them" in text for text in ended.report["not_checked"])


def test_a_thread_that_the_program_does_not_join_is_in_the_report(tmp_path: Path) -> None:
    program = (
        "import threading, time\ndef late():\n    time.sleep(0.5)\n    print(torch.ones(2, device='mps').sum())\n"
        "threading.Thread(target=late).start()"
    )
    ended = run(tmp_path, program)
    assert "aten::sum" in [group["op"] for group in ended.report["calls"]]


def test_nothing_that_the_program_started_outlives_the_run(tmp_path: Path) -> None:
    program = (
        "import time\nif os.fork() == 0:\n    os.setsid()\n    open('orphan', 'w').write(str(os.getpid()))\n"
        "    time.sleep(100)\nwhile not os.path.exists('orphan'):\n    time.sleep(0.01)\ntorch.ones(1, device='mps')"
    )
    ended = run(tmp_path, program)
    assert ended.code == 0
    stat = Path("/proc", (tmp_path / "orphan").read_text(), "stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_sigterm_keeps_what_was_seen(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import time, torch\nx = torch.ones(2, device='mps').sum()\nprint('ready', flush=True)\ntime.sleep(100)\n"
    )
    command = [sys.executable, "-m", "opcheck", "run", "--torch=2.13", "-o", "report.json", "program.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    report = json.loads((tmp_path / "report.json").read_text())
    assert process.returncode == 128 + signal.SIGTERM
    assert report["totals"]["calls"] == 2
    assert "SIGTERM ended the program" in report["findings"][0]["message"]


def test_a_program_that_leaves_no_report_is_three_lines(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nos._exit(0)\n")
    with pytest.raises(CaptureError, match="left no report"):
        emulated_run.run(RunRequest(program=str(program), torch="2.13", macos="15.0"))


def test_a_disk_that_takes_no_report_is_three_lines(tmp_path: Path) -> None:
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\nprint(torch.ones(1, device='mps'))"
    ended = run(tmp_path, limit)
    assert ended.code == 3
    assert "Traceback" not in ended.written
    assert "the program exited with code 0 and left no report" in ended.written


def test_the_space_of_the_report_is_taken_before_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import glob, os, sys, tempfile\n"
        "sizes = [os.path.getsize(f) for f in glob.glob(tempfile.gettempdir() + '/opcheck-*/outcome.json')]\n"
        f"sys.exit(0 if max(sizes) >= {emulated_run.RESERVED} else 9)\n"
    )
    outcome = emulated_run.run(RunRequest(program=str(program), torch="2.13", macos="15.0"))
    assert outcome.exit_code == 0
