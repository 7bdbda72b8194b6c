"""Results as a sweep makes them, without running a model."""

from __future__ import annotations

from collections.abc import Sequence

from opcheck.common.vocabulary import Mode
from opcheck.features.sweep.sweep_folder import SweepDescription
from opcheck.features.sweep.sweep_records import MissingVerdict, Model, NotNativeCalls, SweepOutcome, SweepResult

TARGETS = ("2.4/15.0", "2.5/15.0")
NATIVE = {"calls": 4, "operators": 2, "native": 4}


def runs(name: str = "BertModel", key: str = "a" * 32, mode: Mode = "inference") -> SweepResult:
    """Native on the one, only with the variable on the other."""
    softmax = NotNativeCalls(op="aten::_safe_softmax", status="fallback", kind="env", calls=1)
    return SweepResult(
        key=key,
        model=Model(spec=f"transformers:{name}", family="BertConfig"),
        mode=mode,
        config={"num_hidden_layers": 2},
        outcomes=(
            SweepOutcome(targets=TARGETS[:1], headline="runs natively", complete=True, totals=NATIVE),
            SweepOutcome(
                targets=TARGETS[1:],
                headline="runs only with PYTORCH_ENABLE_MPS_FALLBACK=1",
                complete=True,
                totals={"calls": 4, "operators": 2, "native": 3, "fallback_env": 1},
                not_native=(softmax,),
                capture=1,
            ),
        ),
        uses={"aten::linear": 3, "aten::_safe_softmax": 1},
        captures=2,
        seconds=1.5,
    )


def fails_to_load(key: str = "b" * 32) -> SweepResult:
    """Nothing is known of it."""
    failed = MissingVerdict(
        targets=TARGETS,
        stage="load",
        problem="ModelLoadError",
        message="building timm:x raises TypeError: no",
        plain="TypeError: no [x.py:1]",
    )
    return SweepResult(key=key, model=Model(spec="timm:x", family="x"), mode="train", failures=(failed,))


def about(keys: Sequence[str]) -> SweepDescription:
    """What a folder with these results says of itself."""
    return SweepDescription(
        op_lists="abc",
        sources="def",
        packages={"torch": "2.13.0"},
        targets=TARGETS,
        modes=("inference", "train"),
        keys=tuple(keys),
    )
