"""Find the steps of torch.optim that call other operators on a simulated Mac than the same step of an older release.

python -m scripts.compare_optimizers [RELEASE ...]: reads ``torch/optim`` of the macOS wheels (from
the cache, else downloaded), runs it and the installed one, as opcheck replaces it
(simulator/visible/device_mode.py), for that target, and prints what differs; 1 if an operator that is not
native in the release is called by one of the two alone.
"""

import argparse
import importlib
import re
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from opcheck.capture.child.recording.recorder import Recorder
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists, load
from opcheck.data.wheels.archive import default_cache, obtain
from opcheck.simulator.dispatch.dispatcher import KEEP_ELEMENTS
from opcheck.simulator.dispatch.tensor import to_mps
from opcheck.simulator.mac import simulated_mac


class Case(NamedTuple):
    """An optimizer and its arguments."""

    kind: str
    arguments: dict[str, Any] = {}

    def __str__(self) -> str:
        """``SGD(lr=0.1)``."""
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"


CASES = msgspec.yaml.decode(Path(__file__).with_name("optimizers.yaml").read_bytes(), type=list[Case])
_FINE = ("native", "composite")


def main() -> int:
    """Print a line for each step that differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", help="such as 2.0.1; all of the op lists")
    asked = parser.parse_args().releases
    lists = load()
    wrong = 0
    warnings.simplefilter("ignore")  # of the older releases' own code
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for release in lists.releases:
            if asked and release.torch not in asked:
                continue
            package = unpacked(release.torch, Path(folder))
            target = Target(torch=Version.parse(release.line), macos=Version.parse(release.minimum_macos))
            differ = [row for case in CASES if (row := compared(case, package, target, lists))]
            print(f"{release.torch}: {len(CASES)} steps, {len(differ)} differ")
            print("".join(f"  {text}\n" for text, _ in differ), end="")
            wrong += sum(matters for _, matters in differ)
    return 1 if wrong else 0


def unpacked(release: str, folder: Path) -> str:
    """The name of a package that holds the release's optimizers."""
    name = f"optim_{release.replace('.', '_')}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    with zipfile.ZipFile(obtain(release, default_cache())) as wheel:
        for path in wheel.namelist():
            if re.fullmatch(r"torch/optim/(?!__init__)\w+\.py", path):
                text = wheel.read(path).decode("utf-8")
                text = re.sub(r"from torch\.optim(?=[. ])", f"from {name}", text)
                (folder / name / Path(path).name).write_text(text, encoding="utf-8")
    return name


def compared(case: Case, package: str, target: Target, lists: OpLists) -> tuple[str, bool] | None:
    """What only one of the two calls, and whether it matters to a verdict; None: they call the same."""
    module = importlib.import_module(f"{package}.{case.kind.lower()}")
    older = calls(getattr(module, case.kind), case, target, lists)
    ours = calls(getattr(torch.optim, case.kind), case, target, lists)
    alone = [*(older - ours), *(ours - older)]
    if not alone:
        return None
    matters = [op for op in alone if lists.resolve(op, str(target.torch)).status not in _FINE]
    result = f"{case}: theirs alone {dict(older - ours)}, ours alone {dict(ours - older)}"
    return f"{result}{'; not native: ' if matters else ''}{', '.join(matters)}", bool(matters)


def calls(kind: Any, case: Case, target: Target, lists: OpLists) -> Counter[str]:
    """The operators of two steps on a matrix."""
    recorder = Recorder()
    registrations = dict(lists.operators(str(target.torch)))
    moved = to_mps(torch.ones(3, 4), keep=KEEP_ELEMENTS)
    with simulated_mac(target, registrations, recorder), torch.enable_grad():
        weight = torch.nn.Parameter(moved)
        optimizer = kind([weight], **case.arguments)

        def closure() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = (weight * weight).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(2):
            if case.kind == "LBFGS":
                optimizer.step(closure)
                continue
            closure()
            optimizer.step()
    return Counter(entry.call.route.name for entry in recorder.calls)


if __name__ == "__main__":
    sys.exit(main())
