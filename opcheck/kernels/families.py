"""Families of kernels, by their names, and the tasks of a run: the kernels of an operation."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from opcheck.data.strict_yaml import read_as
from opcheck.kernels import kernel_names
from opcheck.kernels.kernel_records import Task

#: The first that matches the beginning of a kernel's name is its family.
_PATTERNS = tuple(
    (re.compile(pattern), family)
    for family, pattern in read_as(Path(__file__).with_name("families.yaml"), dict[str, str]).items()
)
_TERNARY = frozenset(["addcmul", "addcdiv", "lerp", "clamp", "where"])
#: The families whose results each depend on a single place of the operands.
POINTWISE = ("unary", "binary", "ternary")


def family_of(name: str, forms: Iterable[str]) -> str:
    """Return the family of a kernel.

    Args:
        name: its name.
        forms: those of all kernels of its operation.
    """
    for pattern, family in _PATTERNS:
        if pattern.match(name):
            return family
    operation = kernel_names.parse(name).operation
    forms = tuple(forms)
    if operation in _TERNARY:
        return "ternary"
    if not any(forms):
        return "other"
    return "binary" if any("broadcast" in form for form in forms) else "unary"


def tasks(kernels: Iterable[str]) -> tuple[Task, ...]:
    """Return the kernels of a release by operation."""
    operations: dict[str, list[str]] = defaultdict(list)
    for name in sorted(kernels):
        operations[kernel_names.parse(name).operation].append(name)
    tasks = []
    for operation, members in operations.items():
        forms = [kernel_names.parse(name).form for name in members]
        by_family: dict[str, list[str]] = defaultdict(list)
        for name in members:
            by_family[family_of(name, forms)].append(name)
        tasks += [
            Task(family=family, operation=operation, kernels=tuple(listed)) for family, listed in by_family.items()
        ]
    return tuple(tasks)
