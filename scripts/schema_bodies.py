"""Record what composites call, with arguments made from their schemas.

Usage: python -m scripts.schema_bodies [--op PATTERN]

PyTorch's operator database (scripts/opinfo) has no sample of many overloads: forms with ``out=``,
in-place and foreach forms, aliases, functions without a test.  Here each composite overload that
op_lists/composites.json does not know is called on the simulated Mac of each release, with
arguments that are made from its schema, and the operators that its body calls are kept in
op_lists/schema_bodies.json.  A body that no made arguments satisfy stays unknown; its name is
printed.
"""

import argparse
import fnmatch
import functools
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
import yaml

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data import composites
from opcheck.data.registrations import data_directory, load
from opcheck.simulator.dispatch.tensor import to_mps
from scripts import by_release
from scripts.opinfo.forks import record_in_forks
from scripts.opinfo.record import KEEP, Watch, mac

#: by overload: what its body always calls, and what it sometimes calls
Bodies = dict[str, tuple[list[str], list[str]]]

#: How many overloads a child process tries, and the seconds that it has for each.
CHUNK, SECONDS = 60, 30
OLDEST = Version(2, 8)


class Scene(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the arguments of one call have in common."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    #: the shape of the tensors after the first; None: the same
    second: tuple[int, ...] | None = None
    flag: bool = False
    number: int = 2
    #: which of the texts that a parameter takes
    text: int = 0
    #: dtypes of tensors that results are written to, the first and the others; None: the scene's
    results: tuple[torch.dtype | None, torch.dtype | None] = (None, torch.int64)


class Tables(msgspec.Struct, forbid_unknown_fields=True):
    """The content of schema_arguments.yaml, which states what each table is."""

    scenes: list[Scene]
    shapes: dict[str, dict[str, tuple[int, ...]]]
    texts: dict[str, tuple[str | None, ...]]
    indices: frozenset[str]
    masks: frozenset[str]
    scalars: frozenset[str]


TABLES = msgspec.convert(
    yaml.safe_load(Path(__file__).with_name("schema_arguments.yaml").read_bytes()),
    Tables,
    dec_hook=lambda _, name: getattr(torch, name),
)


def arguments(schema: Any, scene: Scene) -> tuple[list[Any], dict[str, Any]]:
    """Make the arguments of one call, on the simulated device.

    Raises:
        NotImplementedError: a parameter has a type for which nothing is made.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    tensors = 0
    for parameter in schema.arguments:
        kind = str(parameter.type)
        is_written = parameter.alias_info is not None and parameter.alias_info.is_write
        if parameter.kwarg_only and is_written:
            kwargs[parameter.name] = _result(kind, scene, len(kwargs))
            continue
        if parameter.name == "device":
            kwargs["device"] = torch.device("mps")
            continue
        is_chosen = scene.flag and kind in {"bool", "Optional[Tensor]", "Optional[number]"}
        if parameter.has_default_value() and not is_chosen:
            continue
        shape = TABLES.shapes.get(schema.name, {}).get(parameter.name)
        if shape is not None:
            value = _tensor(parameter.name, msgspec.structs.replace(scene, shape=shape), 0)
        elif schema.name.startswith("aten::_foreach_") and kind == "Tensor":
            # ForeachUtils.h: scalars of a list stand in a tensor of the CPU.
            value = torch.ones(2) if parameter.name == "scalars" else _made(torch.ones(()))
        else:
            value = _value(kind, parameter, scene, tensors)
        tensors += "Tensor" in kind
        if parameter.kwarg_only or parameter.has_default_value():
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return args, kwargs


def _result(kind: str, scene: Scene, place: int) -> Any:
    dtype = scene.results[bool(place)] or scene.dtype
    if kind.startswith("List"):
        return [_made(torch.empty(scene.shape, dtype=dtype)) for _ in range(2)]
    return _made(torch.empty(0, dtype=dtype))


def _value(kind: str, parameter: Any, scene: Scene, place: int) -> Any:  # noqa: C901, PLR0911, PLR0912 - a table by type
    name, count = parameter.name, parameter.N
    if kind.startswith("Optional"):
        kind = kind.removeprefix("Optional[").removesuffix("]")
        if not scene.flag or kind not in {"Tensor", "number", "bool"}:
            return None
    if "dtype" in name:
        return torch.float32
    if kind == "Tensor":
        return _tensor(name, scene, place)
    if kind in {"List[Tensor]", "List[Optional[Tensor]]"}:
        if name == "indices":
            return [_made(torch.tensor([0, 1]))]
        return [_tensor(name, scene, place) for _ in range(2)]
    if kind in {"int", "SymInt"}:
        return 0 if name.startswith(("dim", "axis", "start", "low", "storage_offset")) else 2
    if kind.startswith(("List[int]", "List[SymInt]")):
        numbers = _numbers(name, scene)
        return numbers[:1] * count if count and len(numbers) != count else numbers
    if kind == "bool":
        return scene.flag
    if kind.startswith("List[bool]"):
        return [True] * (count or 3)
    if kind in {"number", "Scalar"}:
        return scene.number
    if kind.startswith(("List[number]", "List[Scalar]")):
        return [scene.number, scene.number]
    if kind == "float":
        return 0.5
    if kind.startswith("List[float]"):
        return [1.0, 1.0]
    if kind == "str":
        return TABLES.texts.get(name, ("sum", "mean", "none"))[scene.text]
    if kind == "Device":
        return torch.device("mps")
    raise NotImplementedError(kind)


def _numbers(name: str, scene: Scene) -> list[int]:
    spatial = max(len(scene.shape) - 2, 1)
    if name in {"size", "shape", "normalized_shape", "input_size", "self_size", "sizes"}:
        return list(scene.shape)
    if name.startswith(("dim", "axis")):
        return [0] if scene.flag else list(range(len(scene.shape)))
    if name in {"padding", "output_padding", "pad"}:
        return [0] * (spatial * 2 if name == "pad" else spatial)
    if name in {"split_sizes", "split_size"}:
        return [1, scene.shape[0] - 1] if scene.shape else [1]
    if name == "stride" and spatial == 1:
        return [1] * len(scene.shape)
    return [4 if name == "output_size" else 1] * spatial


def _tensor(name: str, scene: Scene, place: int) -> Any:
    shape = scene.shape if not place or scene.second is None else scene.second
    if name in TABLES.indices:
        return _made(torch.zeros(shape, dtype=torch.int64))
    if name in TABLES.masks:
        return _made(torch.ones(shape, dtype=torch.bool))
    if name in TABLES.scalars:
        return _made(torch.ones((), dtype=scene.dtype))
    if name in {"bias", "running_mean", "running_var"}:
        return _made(torch.ones(shape[:1] or (1,), dtype=scene.dtype))
    if name == "tensor_indices_or_sections":
        return torch.tensor([1, 2])
    made = torch.ones(shape, dtype=scene.dtype)
    if len(shape) > 1 and shape[-1] == shape[-2] and scene.dtype.is_floating_point:
        made = made + 3 * torch.eye(shape[-1], dtype=scene.dtype)  # positive definite
    return _made(made)


def _made(tensor: torch.Tensor) -> Any:
    return to_mps(tensor, keep=KEEP)


def overload_of(name: str) -> Any:
    """Return the installed torch's overload; None where it has none of that name."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None)


def record(names: Sequence[str], line: str) -> Bodies:
    """Return what each overload calls with the registrations of a release: always, and sometimes."""
    recorded: Bodies = {}
    watch = Watch()
    with mac(line, watch):
        for name in names:
            watch.bodies = {}
            for scene in TABLES.scenes:
                _attempt(overload_of(name), scene, watch)
            body = watch.bodies.get(name)
            if body is not None:
                recorded[name] = body.calls
    return recorded


def _attempt(overload: Any, scene: Scene, watch: Watch) -> None:
    """Call the overload once; what a call that raises has entered does not count."""
    before = {name: (body.entered, dict(body.leaves)) for name, body in watch.bodies.items()}
    try:
        args, kwargs = arguments(overload._schema, scene)  # noqa: SLF001 - an overload's only description
        with warnings.catch_warnings(), watch.watching(), torch.inference_mode():
            warnings.simplefilter("ignore")
            overload(*args, **kwargs)
    except Exception:  # noqa: BLE001 - made arguments need not fit
        for name, body in list(watch.bodies.items()):
            if name in before:
                body.entered, body.leaves = before[name]
            else:
                del watch.bodies[name]


def in_forks(names: Sequence[str], line: str) -> Bodies:
    """Record in child processes: arguments that were made up may end one."""
    work = functools.partial(record, line=line)
    return record_in_forks(names, work, Bodies, chunk=CHUNK, seconds=SECONDS, label=f"{line} ")


def unknown(line: str, find_body: Callable[[str, str], object]) -> list[str]:
    """Return the composites of a release that ``find_body`` has no body of, each once."""
    resolutions = (load().resolve(name, line) for name in sorted(load().operators(line)))
    composite = dict.fromkeys(each.chain[-1] for each in resolutions if each.status == "composite")
    return [name for name in composite if find_body(name, line) is None]


def file_text(bodies: dict[str, Bodies], releases: dict[str, str]) -> str:
    """Return the file: release line -> overload -> body becomes overload -> rows where it changes.

    Args:
        bodies: what each overload calls, by release line.
        releases: by release line, the release that was run or read for it.
    """
    lines = sorted(bodies, key=Version.parse)
    head = {"schema": 1, "torch": {line: releases[line] for line in lines}}
    return by_release.text(head, "composites", bodies)


def main() -> None:
    """Record, write the file, print what stays unknown."""
    parser = argparse.ArgumentParser(description="Record bodies of composites by their schemas.")
    parser.add_argument("--op", default="*", help="overloads of this pattern alone, printed")
    options = parser.parse_args()
    releases = [release.line for release in load().releases]
    lines = [line for line in releases if Version.parse(line) >= OLDEST]
    bodies = {}
    for line in lines:
        asked = [name for name in unknown(line, composites.find_sampled_body) if fnmatch.fnmatch(name, options.op)]
        bodies[line] = in_forks([name for name in asked if overload_of(name) is not None], line)
        print(f"{line}: {len(bodies[line])} of {len(asked)} bodies recorded", file=sys.stderr)
        if line == max(lines, key=Version.parse):
            print("\n".join(name for name in asked if name not in bodies[line]))
    if options.op != "*":
        print(json.dumps(bodies, indent=1))
        return
    installed = str(torch.__version__).partition("+")[0]
    made = file_text(bodies, dict.fromkeys(lines, installed))
    write_text(data_directory() / composites.MADE.name, made)


if __name__ == "__main__":
    main()
