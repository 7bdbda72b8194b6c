"""Every sample of PyTorch's operator database, forward and backward: no contradiction to its CI without a reason.

op_lists/opinfo/disagreements.yaml holds the reasons; ``scripts/refresh_agreement.py`` looks at the other dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from opcheck.common.versions import Version
from scripts.opinfo import ci, disagreements, record
from scripts.opinfo.compare import compare
from scripts.opinfo.forks import run_in_forks
from scripts.opinfo.store import MACOS, PASSES, SIMULATED_MACOS, Info, Recording, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

LINE = str(Version.parse(torch.__version__))
ALL = 10_000


Expected = dict[str, dict[str, dict[str, dict[str, str]]]]


def _expected() -> Expected:
    return {macos: ci.expectations(macos) for macos in MACOS}


def _run(op: Any, samples: int, watch: record.Watch, *, gradient: bool) -> Run:
    try:
        made = record.samples_of(op, torch.float32, samples)
    except Exception as error:  # noqa: BLE001 - torch's samples on a device that is not there
        return Run(samples=0, failures=(repr(error),))
    return record.run(op, made, watch, gradient=gradient)


def contradictions(ops: Sequence[Any], samples: int, passes: tuple[str, ...], expected: Expected) -> list[str]:
    """What our verdicts on float32 say against the CI's lists without a reason that is written down."""
    watch = record.Watch()
    infos = {}
    with record.mac(LINE, watch):
        for op in ops:
            name = ci.key(op)
            states = {macos: rows[name] for macos, rows in expected.items()}
            runs: dict[str, dict[str, Run]] = {kind: {} for kind in PASSES}
            for kind in passes:
                if "float32" in states[SIMULATED_MACOS][kind]:
                    gradient = kind == "gradient"
                    runs[kind]["float32"] = _run(op, samples, watch, gradient=gradient)
            infos[name] = Info(api=name, ci=states, runs=runs)
    recording = Recording(torch=torch.__version__, line=LINE, samples=samples, opinfos=infos, composites={})
    explanations = disagreements.load()
    return [
        f"{pair.opinfo}, {pair.kind}: the CI expects {pair.expected}; {pair.because}"
        for pair in compare(recording, SIMULATED_MACOS)
        if pair.predicted is not None and not pair.agrees and disagreements.explain(pair, explanations) is None
    ]


@pytest.mark.filterwarnings("ignore")  # PyTorch's own samples provoke PyTorch's own warnings
def test_gradients_of_one_operator_in_five() -> None:
    assert contradictions(record.op_db()[::5], 2, ("gradient",), _expected()) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_samples() -> None:
    ops, expected = record.op_db(), _expected()
    # Torch's samples on a device that is not there can end the process.
    made = run_in_forks(
        ops,
        lambda some: contradictions(some, ALL, PASSES, expected),
        list[str],
        lambda op, error: [f"{ci.key(op)}: {error}"],
        chunk=25,
        seconds=600,
    )
    assert [text for texts in made for text in texts] == []
