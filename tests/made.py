"""Small traces and op lists, made in the test that needs them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from opcheck.common.versions import Target, Version
from opcheck.data.files import Counts, Release
from opcheck.data.history import SCHEMA, History, contract
from opcheck.data.matching import match
from opcheck.data.registrations import FILES, OpLists
from opcheck.data.statement_model import Argument, Arguments, ErrorText, Statement, StatementEvidence
from opcheck.data.statements import CuratedStatements
from opcheck.judge.assembly import report
from opcheck.judge.rules import BY_ID
from opcheck.judge.rules.rule import Audited
from opcheck.model.records import KernelNumbers, OpCall, Precision, Problem, Report, SourceLocation, TensorSpec, Trace

COMMIT = "0123456789abcdef0123456789abcdef01234567"

#: One operator for each value that a registration can have, constant over the made releases.
VALUES = {
    "aten::mm": "kernel",
    "aten::mm.out": "kernel",
    "aten::relu": "kernel",
    "aten::add_.Tensor": "kernel",
    "aten::view": "kernel",
    "aten::special_python": "python_kernel",
    "aten::embedding_renorm_": "cpu_fallback",
    "aten::foo": "cpu_only",
    "aten::svd": "out:aten::svd.U",
    "aten::svd.U": "cpu_only",
    "aten::add": "out:aten::mm.out",
    "aten::stub": "error_stub",
    "aten::digamma": "missing_stub:digamma_stub",
    "aten::nothing": "no_dense_kernel",
    "aten::comp": "composite_explicit",
    "aten::comp.out": "wrapper:aten::comp",
    "aten::implied": "composite_implicit",
}


def holds(statement: Statement, call: OpCall, target: Target) -> bool | None:
    """Return whether a statement applies to a call; None where the recorded call does not decide it."""
    ((_, applies),) = match((statement,), call, target).answers
    return applies


def make_statement(name: str, **others: object) -> Statement:
    """A limitation of aten::mm that raises, unless said otherwise."""
    content = {
        "id": name,
        "sort": "limitation",
        "ops": ("aten::mm",),
        "effect": "raises",
        "error": ErrorText(type="RuntimeError", text=f"{name} is refused"),
        "summary": f"The kernel refuses {name}.",
        "evidence": (StatementEvidence(kind="source", torch="2.13", where="Made.mm", line=7),),
        **others,
    }
    return Statement(**content)  # type: ignore[arg-type]


#: What stands in the lists of every release.
NO_FLOAT64 = make_statement(
    "dtype-float64",
    ops=("*",),
    dtypes=("float64",),
    error=ErrorText(type="TypeError", text="Cannot convert a MPS Tensor to float64 dtype as ..."),
    summary="No float64 tensor can be made on MPS.",
)


def make_lists(
    changes: Mapping[str, Mapping[str, str]] | None = None,
    *,
    statements: tuple[Statement, ...] = (),
    arguments: Mapping[str, Arguments] | None = None,
    lines: tuple[str, ...] = ("2.12", "2.13", "2.14"),
    sparse: Mapping[str, str] | None = None,
) -> OpLists:
    """Op lists of three releases.

    ``changes`` gives operators of their own the value in each line in which they exist.
    """
    columns = {op: dict.fromkeys(lines, value) for op, value in VALUES.items()}
    columns |= {op: dict(values) for op, values in (changes or {}).items()}
    operators = {
        "MPS": {op: contract(values, lines) for op, values in columns.items()},
        "SparseMPS": {op: contract(dict.fromkeys(lines, value), lines) for op, value in (sparse or {}).items()},
    }
    histories = {
        key: History(schema=SCHEMA, namespace="aten", key=key, operators=operators.get(key, {})) for key in FILES
    }
    return OpLists(
        tuple(_release(line) for line in lines),
        histories,
        "ab" * 32,
        CuratedStatements((NO_FLOAT64, *statements), arguments),
    )


def _release(line: str) -> Release:
    return Release(
        torch=f"{line}.0",
        line=line,
        wheel=f"torch-{line}.0-cp311-none-macosx_14_0_arm64.whl",
        sha256="cd" * 32,
        commit=COMMIT,
        built=date(2026, 7, 3),
        minimum_macos="14.0",
        minimum_macos_text="The MPS backend is supported on macOS 14.0+.",
        counts=Counts(
            aten_mps=6,
            sparse_mps=0,
            sparse_csr_mps=0,
            autocast_mps=0,
            always_fallback=1,
            python=1,
            stubs_with_mps=0,
            overloads=len(VALUES),
        ),
    )


def make_target(torch: str = "2.13", macos: str = "15.0", *, cpu_fallback: bool = False) -> Target:
    return Target(torch=Version.parse(torch), macos=Version.parse(macos), cpu_fallback=cpu_fallback)


def spec(tensor: int, storage: int | None = None, *, dtype: str = "float32", **others: object) -> TensorSpec:
    """A tensor of 2x3 elements; its memory is its own unless said otherwise."""
    content = {
        "tensor": tensor,
        "storage": tensor if storage is None else storage,
        "dtype": dtype,
        "shape": (2, 3),
        **others,
    }
    return TensorSpec(**content)  # type: ignore[arg-type]


def call(op: str, line: int = 1, **others: object) -> OpCall:
    """A call from line ``line`` of model.py."""
    content = {
        "op": op,
        "inputs": (spec(1),),
        "outputs": (spec(2),),
        "location": SourceLocation(file="model.py", line=line, function="forward", text=f"    y = f{line}(x)"),
        "module": "net",
        **others,
    }
    return OpCall(**content)  # type: ignore[arg-type]


def make_trace(*calls: OpCall, **others: object) -> Trace:
    content = {
        "model": "model.py:Net",
        "calls": calls,
        "inputs": ("x: float32[2, 3]",),
        "parameters": 6,
        "parameter_bytes": 24,
        "installed_torch": "2.13.0+cpu",
        "target_torch": "2.13",
        "target_macos": "15.0",
        **others,
    }
    return Trace(**content)  # type: ignore[arg-type]


def make_report(
    *calls: OpCall,
    cpu_fallback: bool = False,
    statements: tuple[Statement, ...] = (),
    mac: int = 0,
    precision: tuple[Precision, ...] = (),
    numbers: tuple[KernelNumbers, ...] = (),
    **others: object,
) -> Report:
    return report(
        make_trace(*calls, **others),
        make_target(cpu_fallback=cpu_fallback),
        make_lists(statements=statements),
        mac=mac,
        precision=precision,
        numbers=numbers,
    )


def problem(kind: str, message: str = "it went wrong") -> Problem:
    return Problem(kind=kind, message=message)


__all__ = [
    "BY_ID",
    "COMMIT",
    "NO_FLOAT64",
    "VALUES",
    "Argument",
    "Audited",
    "ErrorText",
    "call",
    "make_lists",
    "make_report",
    "make_statement",
    "make_target",
    "make_trace",
    "problem",
    "spec",
]


def hostile_report(text: str) -> Report:
    """A report that has the text wherever a program could put it."""
    place = SourceLocation(file=f"{text}.py", line=1, function=text, text=text)
    return make_report(
        call("aten::foo", location=place, module=text),
        call(f"lib::{text}", location=place, module=text, registrations=("CPU",)),
        problems=(problem("model_raised", text),),
        complete=False,
        uncalled=(text,),
        model=text,
        inputs=(text,),
    )
