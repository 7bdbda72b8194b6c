"""Defects that PyTorch's tracker knows, in just the releases that have them: the runner is believed for that."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

pytest.importorskip("llvmlite")

from opcheck.data.registrations import data_directory, load
from opcheck.data.statement_files import read_statements
from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import drive, judging, kernel_names, launch, library, pointwise, reference
from opcheck.kernels.kernel_machine import KernelError, KernelMachine
from opcheck.kernels.kernel_records import Task

FILE = Path(__file__).with_name("public_defects.yaml")


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    kernel: str
    inputs: tuple[str, ...]
    wrong: str
    right: str
    address: str
    present: tuple[str, ...]
    absent: tuple[str, ...]


DEFECTS = msgspec.yaml.decode(FILE.read_bytes(), type=list[Defect])


read = functools.cache(library.read)


def result(machine: KernelMachine, release: str, defect: Defect) -> str:
    """What the release's kernel gives, as it is written."""
    function = read(release).functions[defect.kernel]
    if launch.is_driven(defect.kernel):
        task = Task(family="", operation="", kernels=())
        sample = drive.Drivers().outcome(machine, function, task).smallest
        return sample.result if sample and sample.inputs == defect.inputs else "right"
    named = kernel_names.parse(defect.kernel)
    dtype = pointwise.DTYPES[named.types[0]]
    kernel = machine.kernel(machine.compile_cached(function))
    operands = tuple(torch.tensor([number(text)], dtype=dtype) for text in defect.inputs)
    call = pointwise.PointwiseCall(dtype, operands, torch.arange(1))
    parameters = reference.parameters(named.operation, dtype)
    return judging.text(pointwise.run(named, kernel, call, parameters)[0])


def number(text: str) -> complex | float | int:
    if text.endswith("j"):
        return complex(text)
    return int(text) if re.fullmatch(r"-?\d{3,}", text) else float(text)


def test_there_are_enough_of_them_and_each_is_public() -> None:
    assert len(DEFECTS) >= 25
    assert len({(defect.kernel, defect.inputs) for defect in DEFECTS}) == len(DEFECTS)
    for defect in DEFECTS:
        assert re.fullmatch(r"https://github\.com/pytorch/pytorch/(issues|pull)/\d+", defect.address)
        assert defect.present
        assert defect.absent


def identity(defect: Defect) -> str:
    return f"{defect.kernel}({', '.join(defect.inputs)})"


@pytest.mark.wheel
@pytest.mark.parametrize("defect", DEFECTS, ids=identity)
def test_it_is_reproduced_where_it_is_and_nowhere_else(defect: Defect) -> None:
    machine = KernelMachine(default_cache().parent / "kernels")
    got = {release: result(machine, release, defect) for release in releases(defect)}
    expected = dict.fromkeys(defect.present, defect.wrong) | dict.fromkeys(defect.absent, defect.right)
    assert got == expected


def releases(defect: Defect) -> Sequence[str]:
    return (*defect.present, *defect.absent)


#: Of an advisory's evidence: ``(7, inf) gives nan, right 7``.
_DETAIL = re.compile(r"\(?(?P<inputs>[^)]*?)\)? gives (?P<result>\S+), right ")


#: Advisories whose input no driver tries; tests/kernels/test_masked_rows.py and the end of this file make them.
MADE_INPUTS = {
    "sdpa-one-pass-fully-masked-row",
    "sdpa-two-passes-low-mask",
    "sdpa-blocks-lowest-mask",
    "sdpa-nan-dropped",
    "sdpa-blocks-nan-dropped",
    "cholesky-nan",
}


def of_the_lists() -> list[tuple[str, Defect]]:
    """What the advisories say of kernels, by release line."""
    lists = load()
    results = []
    for statement in read_statements(data_directory()):
        for entry in statement.evidence:
            if entry.kind == "kernel-run" and statement.id not in MADE_INPUTS:
                match = _DETAIL.match(entry.detail)
                assert match, entry.detail
                release = lists.release(entry.torch).torch
                inputs = tuple(match["inputs"].split(", "))
                result = Defect(
                    kernel=entry.where, inputs=inputs, wrong=match["result"], right="", address="",
                    present=(release,), absent=(),
                )  # fmt: skip
                results.append((statement.id, result))
    return results


def test_the_advisories_on_kernels_say_what_was_run() -> None:
    assert len(of_the_lists()) >= 31


@pytest.mark.wheel
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("said", [pytest.param(d, id=name) for name, d in of_the_lists()])
def test_an_advisory_is_what_its_kernel_gives(said: Defect) -> None:
    machine = KernelMachine(default_cache().parent / "kernels")
    assert result(machine, said.present[0], said) == said.wrong


@pytest.mark.wheel
@pytest.mark.parametrize(
    ("release", "name", "is_seen"),
    [
        ("2.7.1", "factorDiagonalBlock", False),
        ("2.12.1", "factorDiagonalBlockL", False),
        ("2.13.0", "factorDiagonalBlockL", True),
    ],
)
def test_a_factorization_reports_a_nan_from_2_13_on(release: str, name: str, is_seen: bool) -> None:
    machine = KernelMachine(default_cache().parent / "kernels")
    kernel = machine.kernel(machine.compile_cached(library.read(release).functions[name]))
    matrix = torch.eye(8)
    matrix[3, 3] = torch.nan
    bound = {"A": matrix, "info": torch.zeros(1, dtype=torch.int32), "N": 8, "NB": 32, "k": 0}
    started = launch.Launch(bound, (256, 1, 1), {}, group=(256, 1, 1))
    if is_seen:  # the threads of the row return before the others
        with pytest.raises(KernelError, match="not all threads of a threadgroup reach a barrier"):
            launch.run(kernel, started)
    else:
        assert launch.run(kernel, started)["info"].tolist() == [0]
