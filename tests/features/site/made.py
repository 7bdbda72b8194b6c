"""A small site: made op lists, and a sweep of four made models over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import StatementEvidence
from opcheck.data.sweep_tables import FORMAT, TABLES
from tests.made import make_lists, make_statement

HOSTILE = "user.py:Net<script>alert(1)</script>&\x1b[31m"


def lists() -> OpLists:
    """Two limits and a fault on aten::mm, an operator that comes, one that goes and comes back."""
    issue = "https://github.com/pytorch/pytorch/issues/1"
    return make_lists(
        {
            "aten::comes": {"2.14": "kernel"},
            "aten::goes": {"2.12": "kernel", "2.14": "cpu_only"},
            "aten::better": {"2.12": "cpu_only", "2.13": "cpu_only", "2.14": "kernel"},
            "aten::worse": {"2.12": "kernel", "2.13": "kernel", "2.14": "cpu_only"},
        },
        statements=(
            make_statement("mm-int", dtypes=("int64",), way_out="Cast to float32."),
            make_statement(
                "mm-wrong",
                sort="advisory",
                effect="wrong_result",
                condition="self.shape[0] > 32 and self.dim < 3",
                links=(issue,),
                evidence=(StatementEvidence(kind="issue", where=issue, detail="a < b & c"),),
            ),
        ),
    )


def _outcome(model: str, torch: str, headline: str, **calls: int) -> dict[str, Any]:
    library = model.partition(":")[0]
    return {
        "model": model,
        "library": library if library == "timm" else "user",
        "family": "Family",
        "mode": "inference",
        "torch": torch,
        "macos": "15.0",
        "fallback": False,
        "headline": headline,
        "complete": headline != "could not tell",
        "calls": 10,
        "operators": 2,
        "native": 10 - sum(calls.values()),
        **dict.fromkeys(("fallback_internal", "fallback_always", "fallback_env", "unknown", "unsupported"), 0),
        **calls,
        "capture": 0,
        "captures": 1,
        "seconds": 0.5,
        "config": '{"layers": 2}',
    }


def tables() -> dict[str, list[dict[str, Any]]]:
    """timm:one runs from 2.14 on, timm:two fails, timm:lost has no verdict, one's name is hostile."""
    outcomes = [
        _outcome("timm:one", "2.13", "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1", fallback_env=3),
        _outcome("timm:one", "2.14", "runs natively"),
        _outcome("timm:two", "2.13", "fails", unsupported=1),
        _outcome("timm:two", "2.14", "fails", unsupported=1),
        _outcome("timm:lost", "2.13", "could not tell", unknown=10),
        _outcome("timm:lost", "2.14", "could not tell", unknown=10),
        _outcome(HOSTILE, "2.13", "runs natively"),
        _outcome(HOSTILE, "2.14", "runs natively"),
    ]
    first = {row["model"]: row for row in outcomes}

    def of(model: str, **others: Any) -> dict[str, Any]:
        return {**{k: first[model][k] for k in ("model", "library", "family", "mode")}, **others}

    def at(torch: str) -> dict[str, Any]:
        return {"torch": torch, "macos": "15.0", "fallback": False}

    return {
        "outcomes": outcomes,
        "operators": [
            of("timm:one", op="aten::better", status="fallback", kind="env", calls=3, **at("2.13")),
            *(
                of("timm:two", op="aten::stub", status="unsupported", kind="", calls=1, **at(line))
                for line in ("2.13", "2.14")
            ),
        ],
        "uses": [
            of("timm:one", op="aten::better", calls=3),
            of("timm:one", op="aten::mm", calls=7),
            of("timm:two", op="aten::stub", calls=1),
            of(HOSTILE, op="aten::mm", calls=10),
        ],
        "failures": [
            of(
                "timm:lost",
                targets=["2.13/15.0", "2.14/15.0"],
                stage="run",
                problem="timeout",
                message="it took longer than 120 s",
                where="",
                without_opcheck="",
                owner="opcheck",
                why="it has no end",
            )
        ],
    }


ABOUT = {"format": FORMAT, "op_lists": "abababababab", "packages": {"timm": "1.0"}}


def write_sweep(folder: Path, about: Mapping[str, Any] = ABOUT) -> Path:
    """The tables as Parquet, typed as their documentation says."""
    import pyarrow as pa
    from pyarrow import parquet

    types = {"list<string>": pa.list_(pa.string()), "bool": pa.bool_()}
    folder.mkdir(parents=True)
    for name, rows in tables().items():
        schema = pa.schema(
            [(column.name, types.get(column.type) or pa.type_for_alias(column.type)) for column in TABLES[name]],
            metadata={"opcheck": json.dumps(about)},
        )
        parquet.write_table(pa.Table.from_pylist(rows, schema), folder / f"{name}.parquet")
    return folder
