"""Record which operators torch's modules, Python functions and methods call on a Mac: op_lists/python_calls.json.

Usage: python -m scripts.python_calls [--name PATTERN]

Each example of scripts/python_call_examples.yaml runs on the simulated Mac of each release, a module in evaluation and
in training.  What the first example calls, a module's in evaluation, is kept as the usual calls; what only the others
call, as called sometimes.  An example that raises is named with its reason, and what it called up to there does not
count.  A name whose installed Python calls an operator that the release lacks stays unknown there.
"""

import argparse
import ast
import fnmatch
import functools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.nn.functional
from torch import nn

from opcheck.common.files import write_text
from opcheck.common.text import one_line
from opcheck.data import composites, tables
from opcheck.data.registrations import data_directory, load
from opcheck.worker.worker import run_forked
from scripts import by_release
from scripts.opinfo.record import Watch, mac

#: by name: the usual calls, and those of other arguments or of training
Calls = dict[str, tuple[list[str], list[str]]]
SECONDS = 600


@functools.cache
def examples() -> dict[str, tuple[str, ...]]:
    """Return the examples by name: ``nn.Linear``, ``nn.functional.lp_pool1d``, ``Tensor.cpu``."""
    path = Path(__file__).with_name("python_call_examples.yaml")
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])


def record(pattern: str, line: str) -> Calls:
    """Return what each name calls with the registrations of a release; a name whose examples all raise is left out."""
    torch.set_num_threads(1)  # a pool of threads does not live on in a fork
    recorded: Calls = {}
    watch = Watch()
    with mac(line, watch), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, expressions in examples().items():
            if not fnmatch.fnmatch(name, pattern) or not _exists(name, line):
                continue
            bodies = [
                called
                for expression in expressions
                for call, training in _prepared(expression, name, line)
                if (called := _run(call, watch, f"{line} {expression}", training=training)) is not None
            ]
            lacking = set().union(*bodies) - load().operators(line).keys()
            if lacking:
                print(f"{line} {name}: the installed Python calls {', '.join(sorted(lacking))}", file=sys.stderr)
            elif bodies:
                usual = bodies[0]
                recorded[name] = (sorted(usual), sorted(set().union(*bodies) - usual))
    return recorded


def _exists(name: str, line: str) -> bool:
    """Return whether a release has the name; what python_names.json leaves out is in every release."""
    listed = tables.NAMES.load()
    parts = f"torch.{name}".split(".")
    for end in range(1, len(parts)):
        module = ".".join(parts[:end])
        known = parts[end] in listed.modules.get(module, {})
        if known and not listed.has(line, module, parts[end]):
            return False
    return True


def _prepared(expression: str, name: str, line: str) -> Iterator[tuple[Any, bool]]:
    """Yield what an example calls, ready to be run, and whether it trains; nothing if preparing it raises."""
    call = ast.parse(expression, mode="eval").body
    assert isinstance(call, ast.Call), expression
    torch.manual_seed(0)
    try:
        callee = _value(call.func)
        modes: tuple[bool, ...] = (False,)
        if isinstance(callee, nn.Module):
            callee, modes = callee.to("mps"), (False, True)
        for training in modes:
            args = [part for each in call.args for part in _parts(each)]
            kwargs = {str(each.arg): _value(each.value) for each in call.keywords}
            if isinstance(callee, nn.Module):
                callee.train(training)
                if training is False:
                    with torch.no_grad():
                        _settle(callee, args, kwargs)
            yield functools.partial(callee, *args, **kwargs), training
    except Exception as error:  # noqa: BLE001 - the release may lack what the example is made of
        print(f"{line} {name}: {expression} cannot be prepared: {one_line(error)}", file=sys.stderr)


def _settle(module: nn.Module, args: Any, kwargs: Any) -> None:
    """Let a lazy module make its parameters, which only its first call does."""
    if any(isinstance(each, (nn.UninitializedParameter, nn.UninitializedBuffer)) for each in module.parameters()):
        module(*args, **kwargs)


def _parts(node: ast.expr) -> list[Any]:
    """Return the arguments that an expression stands for, ``*`` being taken apart."""
    return [*_value(node.value)] if isinstance(node, ast.Starred) else [_value(node)]


def _value(node: ast.expr) -> Any:
    return eval(compile(ast.Expression(node), "<example>", "eval"), NAMES)  # noqa: S307 - our own examples


def _run(call: Any, watch: Watch, place: str, *, training: bool) -> set[str] | None:
    """Return the operators that a call runs; None if it raises."""
    try:
        with torch.set_grad_enabled(training), watch.calling() as called:
            call()
    except Exception as error:  # noqa: BLE001 - what the target refuses is no body
        print(f"{place}: {type(error).__name__}: {one_line(error)}", file=sys.stderr)
        return None
    return called


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers on the simulated Mac."""
    return torch.rand(shape, dtype=dtype).to("mps")


def ints(below: int, *shape: int) -> torch.Tensor:
    """Return whole numbers on the simulated Mac."""
    return torch.randint(below, shape).to("mps")


def bools(*shape: int) -> torch.Tensor:
    """Return truth values on the simulated Mac; the first of each row is false."""
    made = torch.ones(shape, dtype=torch.bool)
    made[..., 0] = False
    return made.to("mps")


def grown(*shape: int) -> nn.Parameter:
    """Return a parameter on the simulated Mac that has a gradient."""
    parameter = nn.Parameter(x(*shape))
    parameter.grad = x(*shape)
    return parameter


def rotary(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate halves of the last dimension, as most language models do."""
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin


def rotary_complex(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of the last dimension as complex numbers, as the first Llama does."""
    pairs = torch.view_as_complex(heads.reshape(*heads.shape[:-1], -1, 2))
    turns = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(pairs * turns).flatten(-2)


def drawn(distribution: torch.distributions.Distribution) -> torch.Tensor:
    """Draw a sample."""
    return distribution.sample()


def weighed(distribution: torch.distributions.Distribution) -> torch.Tensor:
    """Return the logarithm of the probability of a sample."""
    return distribution.log_prob(distribution.sample())


def scaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Take the step of a program that scales its loss."""
    scaler.scale(loss)
    scaler.step(optimizer)
    scaler.update()


_HELPERS = (bools, drawn, grown, ints, rotary, rotary_complex, scaled, weighed, x)
#: What the examples may name.
NAMES = {"F": nn.functional, "nn": nn, "torch": torch} | {helper.__name__: helper for helper in _HELPERS}


def file_text(calls: dict[str, Calls]) -> str:
    """Return the file: release line -> name -> calls becomes name -> rows where they change."""
    head = {"schema": tables.SCHEMA, "torch": str(torch.__version__).partition("+")[0]}
    return by_release.text(head, "calls", calls)


def main() -> None:
    """Record and write the file."""
    parser = argparse.ArgumentParser(description="Record what Python names call on a Mac.")
    parser.add_argument("--name", default="*", help="names of this pattern alone, printed")
    options = parser.parse_args()
    calls = {
        release.line: run_forked(functools.partial(record, options.name, release.line), Calls, SECONDS)
        for release in load().releases
    }
    if options.name == "*":
        write_text(data_directory() / composites.PYTHON_CALLS.name, file_text(calls))
    else:
        print(file_text(calls))


if __name__ == "__main__":
    main()
