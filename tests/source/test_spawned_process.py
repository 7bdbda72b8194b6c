"""OC229: what spawn, the start method of macOS, does not start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.source.reading import report

_HEAD = """import functools
import torch
import torch.multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets, transforms
data = TensorDataset(torch.arange(4.0))
def collate(items):
    return items
"""

#: (program, the lines of its findings, counted behind the head)
PROGRAMS = {
    "a loop": ("for x in DataLoader(data, num_workers=2):\n    pass", [1]),
    "a name and enumerate": ("loader = DataLoader(data, 4, num_workers=2)\nfor i, x in enumerate(loader):\n    pass", [2]),
    "next": ("loader = DataLoader(data, num_workers=1)\nx = next(iter(loader))", [2]),
    "by position": ("for x in DataLoader(data, 4, True, None, None, 2):\n    pass", [1]),
    "a constant": ("WORKERS = 4\nfor x in DataLoader(data, num_workers=WORKERS):\n    pass", [2]),
    "a function that is called": ("def main():\n    for x in DataLoader(data, num_workers=2):\n        pass\nmain()", [2]),
    "a loader that is passed on": ("def train(loader):\n    for x in loader:\n        pass\nloader = DataLoader(data, num_workers=2)\ntrain(loader)", [2, 5]),
    "a loader that is returned": ("def loaders():\n    return DataLoader(data, num_workers=2), 1\na, b = loaders()\nfor x in a:\n    pass", [4]),
    "a comprehension": ("loader = DataLoader(data, num_workers=2)\ny = [x for x in loader]", [2]),
    "a process": ("p = mp.Process(target=collate, args=(1,))\np.start()", [1]),
    "a pool": ("with mp.Pool(2) as pool:\n    pool.map(collate, [1])", [1]),
    "spawn": ("mp.spawn(collate, nprocs=2)", [1]),
    "an executor in try": ("try:\n    e = ProcessPoolExecutor()\nfinally:\n    pass", [2]),
    "behind another guard": ("if __name__ == '__main__':\n    pass\nelse:\n    mp.Process(target=collate)", [4]),
    "a lambda": ("def main():\n    return DataLoader(data, num_workers=2, collate_fn=lambda b: b)", [2]),
    "a lambda with a name": ("f = lambda b: b\ndef main():\n    return DataLoader(data, num_workers=2, collate_fn=f)", [3]),
    "a local function": ("def main():\n    def init(i):\n        pass\n    return DataLoader(data, num_workers=2, worker_init_fn=init)", [4]),
    "a local dataset": ("def main():\n    class D(torch.utils.data.Dataset):\n        pass\n    d = D()\n    return DataLoader(d, num_workers=2)", [4]),
    "a transform": ("def main():\n    t = transforms.Compose([transforms.Lambda(lambda x: x * 2)])\n    d = datasets.MNIST('.', transform=t)\n    return DataLoader(d, num_workers=2)", [2]),
    "a target": ("def main():\n    mp.Process(target=lambda: 1).start()", [2]),
    "a default": ("p.add_argument('--threads', type=int, default=4)\nopt = p.parse_args()\nfor x in DataLoader(data, num_workers=int(opt.threads)):\n    pass", [3]),
    "a dict": ("kwargs = {'num_workers': 1, 'pin_memory': True} if accel else {}\nfor x in DataLoader(data, **kwargs):\n    pass", [2]),
    "an updated dict": ("kwargs = {'batch_size': 4}\nkwargs.update({'num_workers': 1})\nfor x in DataLoader(data, **kwargs):\n    pass", [3]),
    "a function with a loader around it": ("loader = DataLoader(data, num_workers=1)\ndef train(epoch):\n    for x in loader:\n        pass\ntrain(1)", [3]),
    # silent
    "a default of none": ("p.add_argument('--threads', default=0)\nopt = p.parse_args()\nfor x in DataLoader(data, num_workers=opt.threads):\n    pass", []),
    "a dict without workers": ("kwargs = {'batch_size': 4}\nfor x in DataLoader(data, **kwargs):\n    pass", []),
    "guarded": ("if __name__ == '__main__':\n    for x in DataLoader(data, num_workers=2):\n        pass", []),
    "guarded the other way round": ("if '__main__' == __name__:\n    mp.Pool(2)", []),
    "a guarded call": ("def main():\n    for x in DataLoader(data, num_workers=2):\n        pass\nif __name__ == '__main__':\n    main()", []),
    "a loader alone": ("loader = DataLoader(data, num_workers=2)\ndef main():\n    for x in loader:\n        pass", []),
    "its length": ("loader = DataLoader(data, num_workers=2)\nprint(len(loader), len(list(range(2))))", []),
    "no workers": ("for x in DataLoader(data, num_workers=0, collate_fn=lambda b: b):\n    pass", []),
    "workers by argument": ("def f(args):\n    return DataLoader(data, num_workers=args.workers, collate_fn=lambda b: b)", []),
    "fork": ("for x in DataLoader(data, num_workers=2, multiprocessing_context='fork'):\n    pass", []),
    "fork for all": ("mp.set_start_method('fork')\nfor x in DataLoader(data, num_workers=2):\n    pass", []),
    "a partial": ("def main():\n    return DataLoader(data, num_workers=2, collate_fn=functools.partial(collate))", []),
    "a lambda that is not kept": ("def main():\n    d = sorted(data, key=lambda x: x)\n    return DataLoader(d, num_workers=2)", []),
    "another loop": ("loader = DataLoader(data, num_workers=2)\nfor x in range(3):\n    pass", []),
    "a method": ("class T:\n    def fit(self):\n        for x in DataLoader(data, num_workers=2):\n            pass", []),
    "threads": ("import threading\nthreading.Thread(target=lambda: 1).start()", []),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_is_named_where_spawn_does_not_start_it(tmp_path: Path, name: str) -> None:
    program, lines = PROGRAMS[name]
    first = _HEAD.count("\n")
    findings = report(tmp_path, program=f"{_HEAD}{program}\n").findings
    named = [
        place.location.line - first
        for finding in findings
        if finding.rule == "OC229"
        for place in finding.locations
        if place.location is not None
    ]
    assert sorted(named) == lines


def test_a_notebook_needs_no_guard_and_classes_of_a_module(tmp_path: Path) -> None:
    code = _HEAD + (
        "class D(torch.utils.data.Dataset):\n    pass\n"
        "for x in DataLoader(data, num_workers=2):\n    pass\n"
        "for x in DataLoader(D(), num_workers=2):\n    pass\n"
    )
    cell = {"cell_type": "code", "source": code, "metadata": {}, "outputs": []}
    notebook = {"cells": [cell], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    (finding,) = [each for each in report(tmp_path).findings if each.rule == "OC229"]
    assert "a class of a notebook" in finding.message


def test_a_file_without_torch_is_not_read(tmp_path: Path) -> None:
    program = "import multiprocessing\nmultiprocessing.Pool(2)\n"
    assert not report(tmp_path, program=program).findings
