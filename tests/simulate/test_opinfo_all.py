"""Every sample of PyTorch's operator database, forward and backward: no contradiction to its CI without a reason.

op_lists/opinfo/disagreements.yaml holds the reasons; ``python -m scripts.agreement`` looks at the other dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from opcheck.versions import Version
from scripts.opinfo import ci, disagreements, record
from scripts.opinfo.compare import compare
from scripts.opinfo.store import MACOS, PASSES, SIMULATED_MACOS, Info, Recording

if TYPE_CHECKING:
    from collections.abc import Sequence

LINE = str(Version.parse(torch.__version__))
ALL = 10_000


def contradictions(ops: Sequence[Any], samples: int, passes: tuple[str, ...]) -> list[str]:
    """What our verdicts on float32 say against the CI's lists without a reason that is written down."""
    expected = {macos: ci.expectations(macos) for macos in MACOS}
    watch = record.Watch()
    infos = {}
    with record.mac(LINE, watch):
        for op in ops:
            name = ci.key(op)
            states = {macos: rows[name] for macos, rows in expected.items()}
            runs = {
                kind: {
                    "float32": record.run(
                        op,
                        record.samples_of(op, torch.float32, samples),
                        watch,
                        gradient=kind == "gradient",
                    )
                }
                for kind in passes
                if "float32" in states[SIMULATED_MACOS][kind]
            }
            infos[name] = Info(api=name, ci=states, runs={**{kind: {} for kind in PASSES}, **runs})
    recording = Recording(
        torch=torch.__version__, line=LINE, samples=samples, opinfos=infos, composites={}
    )
    explanations = disagreements.load()
    return [
        f"{pair.opinfo}, {pair.kind}: the CI expects {pair.expected}; {pair.because}"
        for pair in compare(recording, SIMULATED_MACOS)
        if pair.predicted is not None
        and not pair.agrees
        and disagreements.explain(pair, explanations) is None
    ]


@pytest.mark.filterwarnings("ignore")  # PyTorch's own samples provoke PyTorch's own warnings
def test_gradients_of_one_operator_in_five() -> None:
    ops = record.op_db()[::5]
    assert contradictions(ops, 2, ("gradient",)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_samples() -> None:
    assert contradictions(record.op_db(), ALL, PASSES) == []
