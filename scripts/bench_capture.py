"""What recording and judging cost beside a plain fake-tensor forward of the same model, on this machine.

With ``--train`` a training step of each: forward, loss, backward and AdamW.

Each figure comes from a process of its own.  ``cold`` is the first forward of the process, as a user meets it;
``warm`` the best of five after it.  Ratios are to the plain forward; the model's construction is in none of them.

    python -m scripts.bench_capture [MODEL ...] [--torch 2.13] [--train]
"""

import argparse
import functools
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from scripts.opinfo.forks import in_processes

ZOO = Path(__file__).parents[1] / "examples" / "models" / "zoo.py"
MODELS = (
    *("bert_base", "gpt2", "llama3_8b", "whisper_small", "vit_b16"),
    *("wav2vec2_base", "fnet_base", "resnet50", "sd15_unet", "lstm_tagger"),
)
REPEATS = 5


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--torch", default="2.13", help="target release")
    parser.add_argument("--train", action="store_true", help="a training step, not a forward pass")
    options = parser.parse_args()
    step = " train" if options.train else ""
    methods = [f"plain{step}", f"opcheck{step}"]
    rows = []
    for model in options.models:
        measure = functools.partial(_measure, model, options.torch)
        rows.append(_row(model, dict(zip(methods, in_processes(measure, methods), strict=True))))
        print(f"{model} done", file=sys.stderr)
    print(tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True))
    return 0


def _row(model: str, cells: dict[str, dict[str, float]]) -> dict[str, str]:
    row = {"model": model}
    base, plain = next(iter(cells.items()))
    for method, cell in cells.items():
        for heat in ("cold", "warm"):
            row[f"{method} {heat} ms"] = f"{cell[heat] * 1000:.1f}"
            if method != base:
                row[f"{method} {heat} ratio"] = f"{cell[heat] / plain[heat]:.2f}"
        row["calls"] = str(int(cell.get("calls", 0)))
    return row


def _measure(name: str, torch_line: str, method: str) -> dict[str, float]:
    from opcheck.capture.child.inputs.specs import inputs_for
    from opcheck.capture.child.loading.load import load

    loaded = load(f"{ZOO}:{name}")
    inputs = inputs_for(loaded)
    loaded.model.train(method.endswith("train"))  # type: ignore[attr-defined]
    return METHODS[method](loaded.model, inputs.args, inputs.kwargs, torch_line)


def _timed(run: Callable[[], Any]) -> dict[str, float]:
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"cold": times[0], "warm": min(times[1:])}


def _forward(model: Any, args: Any, kwargs: Any, _sites: Any = None) -> None:
    import torch

    with torch.no_grad():
        model(*args, **kwargs)


def _train_step(model: Any, args: Any, kwargs: Any, sites: Any = None) -> None:
    """The step that opcheck runs, on whatever tensors."""
    from opcheck.capture.child.build import without_compiler
    from opcheck.capture.child.training import TrainStep, parse_optimizer
    from opcheck.tracing.call_sites import CallSites

    model.zero_grad()
    with without_compiler():
        TrainStep(parse_optimizer("adamw"), "")(model, args, kwargs, sites or CallSites())


def _plain(model: Any, args: Any, kwargs: Any, _torch_line: str, program: Any = _forward) -> dict[str, float]:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    mode = FakeTensorMode()
    with mode:

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")

        for module in model.modules():
            for tensors in (module._parameters, module._buffers):
                for key, tensor in tensors.items():
                    if isinstance(tensor, torch.nn.Parameter):
                        tensors[key] = torch.nn.Parameter(fake(tensor), tensor.requires_grad)
                    elif tensor is not None:
                        tensors[key] = fake(tensor)
        args, kwargs = tree_map_only(torch.Tensor, fake, (args, kwargs))

        return _timed(lambda: program(model, args, kwargs))


def _opcheck(model: Any, args: Any, kwargs: Any, torch_line: str, program: Any = _forward) -> dict[str, float]:
    from opcheck.capture.child.build import without_compiler
    from opcheck.capture.child.move import Mover
    from opcheck.capture.child.recording.graph import op_calls, to_graph
    from opcheck.capture.child.recording.recorder import Recorder
    from opcheck.common.versions import Target, Version
    from opcheck.data.registrations import load
    from opcheck.judge.judge import judge_all
    from opcheck.simulator.dispatch.dispatcher import KEEP_ELEMENTS
    from opcheck.simulator.mac import simulated_mac

    target = Target(torch=Version.parse(torch_line), macos=Version(15, 0))
    lists = load()
    registrations = dict(lists.operators(str(target.torch)))
    mover = Mover(KEEP_ELEMENTS)
    mover.module(model)
    args, kwargs = mover.value(args, "args"), mover.value(kwargs, "kwargs")
    recorder = Recorder()
    gc.freeze()  # as opcheck/capture/child/run.py does
    with simulated_mac(target, registrations, recorder):

        def run() -> None:
            recorder.calls.clear()
            with recorder.sites.follow_modules(model), without_compiler():
                program(model, args, kwargs, recorder.sites)
            judge_all(op_calls(to_graph(recorder.calls, mover.names, recorder.place)), target, lists)

        times = _timed(run)
    return {**times, "calls": len(recorder.calls)}


METHODS: dict[str, Callable[[Any, Any, Any, str], dict[str, float]]] = {
    "plain": _plain,
    "opcheck": _opcheck,
    "plain train": functools.partial(_plain, program=_train_step),
    "opcheck train": functools.partial(_opcheck, program=_train_step),
}

if __name__ == "__main__":
    sys.exit(main())
