"""``opcheck diff``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=5,
    help="Compare two releases, two reports or two targets of a model.",
    examples={
        "opcheck diff 2.9 2.15": "two releases, operator by operator",
        "opcheck diff old.json new.json": "two reports that opcheck audit wrote",
        "opcheck diff model.py:Net --from torch=2.9,macos=14 --to torch=2.15": "two targets",
    },
    documents={
        "diff": "opcheck.lookup.diff:DiffAnswer",
        "changes": "opcheck.judge.report_changes:Comparison",
    },
)
