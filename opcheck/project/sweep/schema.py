"""The tables of a sweep: their columns, types and meaning.  ``docs/reference/sweep-tables.md`` describes them.

A folder of a sweep holds one Parquet file a table, ``FOLDER/NAME.parquet``.  The metadata of each file's schema say
under ``opcheck`` (JSON, as ``sweep.json`` in the folder) what was swept: the version of these tables, opcheck's
version, the digest of its op lists, the packages, the targets.
"""

from __future__ import annotations

from typing import NamedTuple

#: Of the tables and of the folder; another one is not read.
FORMAT = 1


class Column(NamedTuple):
    """One column: its name, its type as pyarrow calls it, and what it says."""

    name: str
    type: str
    meaning: str


_MODEL = (
    Column("model", "string", "as `opcheck audit` takes it: `transformers:BertModel`"),
    Column("library", "string", "what stands before the colon; `user` for a file or a module"),
    Column("family", "string", "whose model it is: the configuration's class, timm's module ..."),
    Column("mode", "string", "`inference` or `train`: one forward pass, or one training step"),
)
_TARGET = (
    Column("torch", "string", "torch release line, as `2.13`"),
    Column("macos", "string", "macOS version, as `15.0`"),
    Column("fallback", "bool", "whether PYTORCH_ENABLE_MPS_FALLBACK=1 is set"),
)
_CALLS = (
    ("native", "that run on the GPU"),
    ("fallback_internal", "that go to the CPU inside of a registered kernel"),
    ("fallback_always", "that run on the CPU, with or without the variable"),
    (
        "fallback_env",
        "that run on the CPU with PYTORCH_ENABLE_MPS_FALLBACK=1, and raise without it",
    ),
    ("unknown", "of which nothing is known"),
    ("unsupported", "that raise, even with the variable"),
)

#: The tables, by their names.
TABLES: dict[str, tuple[Column, ...]] = {
    # One row a model, mode and target: also where nothing could be told.
    "outcomes": (
        *_MODEL,
        *_TARGET,
        Column("headline", "string", "what the verdicts come to, as `opcheck audit` says it"),
        Column("complete", "bool", "whether the run came to its end"),
        Column("calls", "int32", "operator calls that were judged"),
        Column("operators", "int32", "distinct operator overloads among them"),
        *(Column(name, "int32", f"calls {meaning}") for name, meaning in _CALLS),
        Column(
            "capture", "int32", "which of the model's runs it was judged from, from 0 on; -1: none"
        ),
        Column("captures", "int32", "runs of this model and mode, for all targets together"),
        Column("seconds", "float32", "that they and the judging took"),
        Column("config", "string", "the settings that made the model small, as JSON; empty: none"),
    ),
    # One row a model, mode, target and operator that is not native there.
    "operators": (
        *_MODEL,
        *_TARGET,
        Column("op", "string", "operator overload, as `aten::nonzero`"),
        Column("status", "string", "`fallback`, `unsupported` or `unknown`"),
        Column("kind", "string", "of a fallback: `internal`, `always` or `env`; else empty"),
        Column("calls", "int32", "how many calls of it have this status"),
    ),
    # One row a model, mode and operator that it calls, whatever the target does with it.
    "uses": (
        *_MODEL,
        Column("op", "string", "operator overload, as `aten::linear`"),
        Column("calls", "int32", "calls in the run that makes most of them"),
    ),
    # One row a model, mode and reason for which there is no verdict for some targets.
    "failures": (
        *_MODEL,
        Column("targets", "list<string>", "without a verdict for it, as `2.13/15.0`"),
        Column(
            "stage", "string", "`load`, `inputs`, `run`, `judge`, or `worker`: the process ended"
        ),
        Column("problem", "string", "kind of the problem: an error's class, `timeout`, `died` ..."),
        Column("message", "string", "what was said"),
        Column("where", "string", "line of the model's code, or the context of the error"),
        Column(
            "without_opcheck",
            "string",
            "`runs`, or what the model raises on a CPU; empty: not tried",
        ),
        Column("owner", "string", "whose it is: `model`, `pytorch` or `opcheck`"),
        Column("why", "string", "the reason for that"),
    ),
}
