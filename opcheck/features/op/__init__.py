"""``opcheck op``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Look up",
    position=1,
    help="Show how each release handles an operator: can I use it?",
    examples={
        "opcheck op torch.linalg.svd": "every release, the newest first to count",
        "opcheck op nn.LSTM --torch 2.9 --macos 14": "one target; a module lists what it calls",
        "opcheck op sdpa --dtype bf16 --json": "for a script",
    },
    documents={"op": "opcheck.lookup.records:Answer"},
)
