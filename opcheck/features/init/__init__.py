"""``opcheck init``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit many models",
    position=1,
    help="Write the table that the gate reads, and its workflow for CI.",
    examples={
        "opcheck init": "a commented [tool.opcheck] in pyproject.toml",
        "opcheck init --model model.py:Net --workflow": "with a model, and a GitHub workflow",
        "opcheck init --print": "show it, and write nothing",
    },
)
