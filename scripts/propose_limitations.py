"""Propose limitations from PyTorch's expected failures.

Usage: python -m scripts.propose_limitations > op_lists/limitations/from_opinfo.yaml

An expected failure of a dtype is taken for a refusal where nothing else explains it: the OpInfo
calls one operator besides views, copies and allocations; it is expected to pass with another dtype;
the CI's own list is not one of mismatching results; the CPU, which the test compares with, does not
raise with that dtype itself; and no OpInfo that the CI expects to pass calls that operator with
that dtype in that argument in that release.
"""

import ast
import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from opcheck.data.registrations import load
from opcheck.data.wheels.archive import default_cache, obtain
from opcheck.model.records import OpCall
from scripts.opinfo import store
from scripts.opinfo.compare import compare
from scripts.pages import page_text
from scripts.wheels.extracted import spans

#: Calls that do no arithmetic: an expected failure is not theirs.
QUIET = re.compile(
    r"aten::(view|_unsafe_view|reshape|_reshape_alias|as_strided|expand|permute|transpose|t|slice|select|squeeze|"
    r"unsqueeze|alias|detach|clone|copy_|_to_copy|empty\w*|new_empty\w*|unfold|diagonal|split\w*|unbind|narrow|"
    r"resolve_\w+|_conj|_neg_view|real|imag|view_as_\w+|movedim|lift\w*|resize_|_local_scalar_dense)(\.\w+)?"
)
#: In these lists a result differs, which is no refusal (common_mps.py's own names).
MISMATCH = frozenset({"UNDEFINED_XFAILLIST"})
PREFIX = "ci-"


class Case(NamedTuple):
    """An operator that refuses a dtype in one of its arguments, as far as the lists tell."""

    op: str
    argument: str
    dtype: str


def main() -> int:
    """Print the file."""
    lines = store.recorded()
    cases: dict[Case, dict[str, set[str]]] = defaultdict(dict)
    for line in lines:
        for case, opinfos in of_release(line).items():
            cases[case][line] = opinfos
    print(page_text("from_opinfo"), end="")
    rows: dict[tuple[str, str, str, str | None], dict[str, set[str]]] = defaultdict(dict)
    for case, by_line in cases.items():
        for since, until in spans(by_line, lines):
            inside = lines[lines.index(since) : lines.index(until) if until else None]
            texts = {name for line in inside for name in by_line[line]}
            rows[case.op, case.argument, since, until][case.dtype] = texts
    taken: dict[str, int] = {}
    for (op, argument, since, until), dtypes in sorted(rows.items(), key=str):
        base = PREFIX + re.sub(r"[^a-z0-9]+", "-", op.removeprefix("aten::").lower()).strip("-")
        taken[base] = taken.get(base, 0) + 1
        name = base if taken[base] == 1 else f"{base}-{taken[base]}"
        print(statement(name, op, argument, since, until, dtypes))
    return 0


def of_release(line: str) -> dict[Case, set[str]]:
    """The cases of one release, each with the OpInfos that tell of it."""
    recording = store.read(line)
    registered = load().operators(line)
    listed = read_lists(recording.torch)
    passing = _passing(recording)
    result: dict[Case, set[str]] = defaultdict(set)
    for pair in compare(recording, store.SIMULATED_MACOS, without=PREFIX):
        unforeseen = pair.expected == "xfail" and pair.predicted is False
        lists = listed.get(pair.opinfo.replace("/", ""), {})
        mismatch = {name for name, dtypes in lists.items() if not dtypes or pair.dtype in dtypes}
        if pair.kind != "forward" or not unforeseen or mismatch & MISMATCH:
            continue
        if "pass" not in recording.opinfos[pair.opinfo].ci[store.SIMULATED_MACOS]["forward"].values():
            continue
        cases = _cases(recording.opinfos[pair.opinfo].runs["forward"][pair.dtype], pair.dtype)
        if cases & passing:
            continue
        for case in cases:
            if registered.get(case.op, "").partition(":")[0] in ("kernel", "out", "python_kernel"):
                result[case].add(pair.opinfo)
    return result


def _passing(recording: store.Recording) -> set[Case]:
    """What the CI expects to pass with: the dtypes of every argument of every call."""
    cases: set[Case] = set()
    for info in recording.opinfos.values():
        for dtype, state in info.ci[store.SIMULATED_MACOS]["forward"].items():
            if state == "pass":
                for call in info.runs["forward"][dtype].calls:
                    cases |= {Case(call.op, spec.argument, spec.dtype) for spec in call.inputs}
                    cases |= {Case(call.op, "result", spec.dtype) for spec in call.outputs}
    return cases


def _cases(run: store.Run, dtype: str) -> set[Case]:
    """The overloads of the one operator that the run calls besides quiet ones, each with its argument of the dtype."""
    loud = [call for call in run.calls if not QUIET.fullmatch(call.op)]
    if len({call.op.partition(".")[0] for call in loud}) != 1 or any(call.inner for call in loud):
        return set()
    return {
        case
        for op in {call.op for call in loud}
        if (case := _case(op, [call for call in loud if call.op == op], dtype)) is not None
    }


def _case(op: str, calls: list[OpCall], dtype: str) -> Case | None:
    if not any(call.inputs for call in calls):
        made = {spec.dtype for call in calls for spec in call.outputs}
        return Case(op, "result", dtype) if made == {dtype} else None
    carrying = [{spec.argument for spec in call.inputs if spec.dtype == dtype} for call in calls]
    common = set.intersection(*carrying) - {""}
    first = next((spec.argument for spec in calls[0].inputs if spec.argument in common), None)
    return None if first is None else Case(op, first, dtype)


def read_lists(torch: str) -> dict[str, dict[str, frozenset[str]]]:
    """CI key (name and variant without separator) -> list of forward that holds it -> dtypes (none: all).

    Raises:
        OpListError: the release's wheel cannot be had.
    """
    with zipfile.ZipFile(obtain(torch, default_cache())) as wheel:
        tree = ast.parse(wheel.read("torch/testing/_internal/common_mps.py"))
    results: dict[str, dict[str, frozenset[str]]] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "mps_ops_modifier":
            for node in ast.walk(function):
                for name, key, dtypes in _keys(node):
                    results.setdefault(key, {})[name] = dtypes
    return results


def _keys(node: ast.AST) -> Iterator[tuple[str, str, frozenset[str]]]:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    for key, value in zip(node.value.keys, node.value.values, strict=True):
        if isinstance(target, ast.Name) and isinstance(key, ast.Constant):
            dtypes = (item.attr for item in ast.walk(value) if isinstance(item, ast.Attribute))
            yield target.id, str(key.value), frozenset(dtypes)


def statement(name: str, op: str, argument: str, since: str, until: str | None, dtypes: dict[str, set[str]]) -> str:
    """One entry of the file."""
    ordered = [dtype for dtype in store.DTYPES if dtype in dtypes]
    opinfos = sorted({text for texts in dtypes.values() for text in texts})
    last = f'"{until}"' if until else "null"
    short = op.removeprefix("aten::").partition(".")[0]
    detail = f"expected failure of test_output_match: {', '.join(opinfos)}"
    return f"""  - id: {name}
    ops: [{json.dumps(op)}]
    effect: raises
    torch: {{since: "{since}", until: {last}}}
    dtypes: [{", ".join(ordered)}]
    dtypes_of: [{argument}]
    summary: PyTorch's own tests expect {short} to fail with {_list(ordered)} on MPS.
    evidence:
      - {{kind: opinfo, torch: "{since}", where: "torch/testing/_internal/common_mps.py", detail: {json.dumps(detail)}}}
"""


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


if __name__ == "__main__":
    sys.exit(main())
