"""Prepared environments: a Mac with which nothing is wrong, and what differs from it."""

from __future__ import annotations

import msgspec

from opcheck.features.doctor.machine_environment import Computer, Environment, Python, Torch

GIB = 1 << 30

CLEAN = Environment(
    tool="opcheck 0.1.0",
    machine=Computer(
        system="Darwin",
        macos="15.5",
        build="24F74",
        model="Mac14,9",
        chip="Apple M2 Pro",
        memory=16 * GIB,
        translated=False,
        virtual=False,
    ),
    python=Python(version="3.12.4", architecture="arm64"),
    torch=Torch(
        version="2.15.0",
        installer="pip",
        commit="d0f2af8b66b20da4baa50644c0cd3f887a2eae2e",
        built=True,
        available=True,
        recommended=11453246122,
    ),
    variables={"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    packages={"torch": "2.15.0", "torchvision": "0.30.0", "numpy": "2.4.0"},
)


def mac(**others: object) -> Environment:
    """The clean Mac with other facts: a field of a machine, Python or torch, or a whole part."""
    parts: dict[str, dict[str, object]] = {"machine": {}, "python": {}, "torch": {}}
    whole: dict[str, object] = {}
    for name, value in others.items():
        part, _, field = name.partition("_")
        if field:
            parts[part][field] = value
        else:
            whole[name] = value
    made = {part: msgspec.structs.replace(getattr(CLEAN, part), **fields) for part, fields in parts.items() if fields}
    return msgspec.structs.replace(CLEAN, **made, **whole)
