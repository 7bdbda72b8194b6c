"""PyTorch's operator database against our verdicts: what its CI expects to pass on MPS, we must not refuse."""

from __future__ import annotations

import pytest
import torch

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.judge.judge import judge_all
from scripts.opinfo import ci, record
from scripts.opinfo.compare import FAILS
from scripts.opinfo.store import SIMULATED_MACOS

#: Of each OpInfo; the database puts the plain ones first.
SAMPLES = 4

#: OpInfo -> why its calls are unknown: they leave the namespace that the lists describe.
UNKNOWN: dict[str, str] = {}

#: OpInfo -> why its calls are refused although its test is not expected to fail.
REFUSED = {"torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "no MPS kernel, as its name says"}

LINE = str(Version.parse(torch.__version__))


@pytest.mark.filterwarnings("ignore")  # PyTorch's own samples provoke PyTorch's own warnings
def test_what_the_ci_expects_to_pass_we_do_not_refuse(lists: OpLists) -> None:
    target = Target(torch=Version.parse(LINE), macos=Version.parse(SIMULATED_MACOS))
    expected = ci.expectations(SIMULATED_MACOS)
    watch = record.Watch()
    refused: list[str] = []
    known: set[str] = set()
    unknown: set[str] = set()
    ran = 0
    with record.mac(LINE, watch):
        for op in record.op_db():
            name = ci.key(op)
            if expected[name]["forward"].get("float32") != "pass":
                continue
            run = record.run(op, record.samples_of(op, torch.float32, SAMPLES), watch, gradient=False)
            ran += bool(run.calls)
            for call, verdict in zip(run.calls, judge_all(run.calls, target, lists), strict=True):
                if (verdict.status, verdict.kind) in FAILS and name in REFUSED:
                    known.add(name)
                elif (verdict.status, verdict.kind) in FAILS:
                    refused.append(f"{name}: {call.op}: {verdict.because}")
                elif verdict.status == "unknown":
                    unknown.add(name)
                    if name not in UNKNOWN:
                        refused.append(f"{name}: {call.op} is unknown: {verdict.because}")
    assert not refused, "\n".join(refused)
    assert unknown == set(UNKNOWN) & set(expected)
    assert known == set(REFUSED) & set(expected)
    # All but those whose samples make no call at all, such as conj on a real tensor.
    assert ran > 0.95 * sum(rows["forward"].get("float32") == "pass" for rows in expected.values())
