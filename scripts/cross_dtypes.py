"""Cross what is known of dtypes from three independent sources, and print where they contradict.

Usage: python -m scripts.cross_dtypes [RELEASE-LINE ...] [--macos 15.0]

1. PyTorch's own CI (op_lists/opinfo): with which dtypes an operator's test is expected to pass or to fail.
2. The names of the Metal kernels in the wheels (op_lists/extracted/metal.json).
3. Our verdicts, which follow the texts of the checks (op_lists/limitations) and the dtypes that no backend
   computes (op_lists/refused_dtypes.json).

An OpInfo speaks of one overload only where its samples reach no other one that decides; a family of
kernels speaks of the operator of the same name.  A dtype without a kernel of its own proves nothing
(it may be cast or go through MPSGraph), so that only a kernel which is there can contradict.  Where the
recordings of ``python -m scripts.run_opinfo_all`` are on this machine, each contradiction is printed with its cause.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from opcheck.common.versions import Target
from opcheck.data.history import expand
from opcheck.data.registrations import data_directory, load
from opcheck.lookup.plain_call import OperatorLookup, target
from scripts.opinfo import disagreements, reference, store
from scripts.opinfo import evaluation as opinfo
from scripts.opinfo.compare import Pair, compare
from scripts.wheels.extracted import read_metal

#: Overloads that nearly every sample reaches, and that no OpInfo is about.
_EVERYWHERE = {"aten::as_strided", "aten::empty.memory_format", "aten::empty_strided", "aten::view"}


class Contradiction(NamedTuple):
    """An overload and a dtype of which a source and our verdict say different things."""

    line: str
    op: str
    dtype: str
    source: str
    verdict: str
    #: the OpInfo whose expectation it is; empty of a kernel
    opinfo: str = ""


#: Causes that leave nothing to find out: the OpInfo's own calls are refused as the CI expects.
FORESEEN = "foreseen: a recorded call is refused for a shape, an argument or a dtype inside"
NOT_RECORDED = "not examined: no recording on this machine"
OPEN = "open"


def causes(rows: Iterable[Contradiction], pairs: Iterable[Pair]) -> Iterator[str]:
    """Yield why each contradiction is there, judged by the calls that the OpInfo's samples made.

    A plain call with one dtype is not what an OpInfo calls: the recorded calls have the shapes and arguments.
    """
    explained = disagreements.load()
    by_key = {(p.line, p.opinfo, p.dtype): p for p in pairs if p.kind == "forward"}
    for row in rows:
        pair = by_key.get((row.line, row.opinfo, row.dtype))
        if not row.opinfo:
            yield "a kernel of that name and dtype is there, for another operator or form"
        elif pair is None:
            yield NOT_RECORDED
        elif pair.predicted is None:
            yield f"says nothing of MPS: {pair.because}"
        elif pair.agrees:
            yield FORESEEN
        else:
            class_ = disagreements.explain(pair, explained)
            yield f"disagreement: {class_}" if class_ else OPEN


def contradictions(line: str, aim: Target, lookup: OperatorLookup) -> Iterator[Contradiction]:
    """Yield what contradicts our verdicts in a release."""
    for op, dtype, state, name in expected(line):
        status = lookup.state(op, aim, dtype).status
        if (state == "pass" and status == "unsupported") or (state == "xfail" and status == "native"):
            yield Contradiction(line, op, dtype, f"OpInfo expects it to {state}", status, name)
    for op, dtypes in kernels(line, lookup.lists.operators(line)).items():
        for dtype in dtypes:
            status = lookup.state(op, aim, dtype).status
            if status == "unsupported":
                yield Contradiction(line, op, dtype, "a Metal kernel is there", status)


def expected(line: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the overloads that an OpInfo alone is about, each dtype that it ran, what is expected, and its name."""
    evaluation = opinfo.read(line)
    if evaluation is None:
        return
    cpu = reference.TABLE.load()
    for name in evaluation.opinfos:
        calls = [op for op in evaluation.calls(name) if op not in _EVERYWHERE]
        if len(calls) != 1:
            continue
        for dtype, state in evaluation.dtypes(name, "forward").items():
            if state == "pass" or (state == "xfail" and not cpu.why("forward", name, dtype)):
                yield calls[0], dtype, state, name


def kernels(line: str, operators: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the dtypes in the names of the Metal kernels whose first word is an operator's name."""
    metal = read_metal(data_directory())
    lines = tuple(release.line for release in load().releases)
    results: dict[str, set[str]] = {}
    for family, history in metal.operators.items():
        value = expand(history, lines).get(line)
        base = family.partition("_*")[0].partition("_#")[0]
        if not value or not family.endswith("*"):
            continue
        for op in (f"aten::{base}", f"aten::{base}.Tensor"):
            if op in operators:
                results.setdefault(op, set()).update(value.split(" | ")[-1].split())
    return results


def main() -> int:
    """Print the contradictions with their causes; 1 if one of them is open or could not be examined."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", nargs="*", help="release lines; all that were recorded by default")
    parser.add_argument("--macos", default="15.0")
    options = parser.parse_args()
    lookup = OperatorLookup(load())
    total: Counter[str] = Counter()
    for line in options.lines or opinfo.lines():
        rows, counts = crossed(line, options.macos, lookup)
        for row, cause in rows:
            what = f"{row.op}  {row.dtype}: {row.source}, our verdict is {row.verdict}"
            print(f"{row.line}  {what}  [{row.opinfo or '-'}: {cause}]")
            total[cause] += 1
        print(f"{line}: {counts}, {len(rows)} contradictions")
    for cause, count in total.most_common():
        print(f"{count}  {cause}")
    return int(bool(total[OPEN] or total[NOT_RECORDED]))


def crossed(line: str, macos: str, lookup: OperatorLookup) -> tuple[list[tuple[Contradiction, str]], str]:
    """Return a release's contradictions with their causes, and how many pairs there are."""
    rows = sorted(set(contradictions(line, target(line, macos), lookup)))
    pairs = list(compare(store.read(line), macos)) if line in store.recorded() else []
    named = sum(map(len, kernels(line, lookup.lists.operators(line)).values()))
    counts = f"{len(set(expected(line)))} pairs of OpInfo, {named} of kernels"
    return list(zip(rows, causes(rows, pairs), strict=True)), counts


if __name__ == "__main__":
    sys.exit(main())
