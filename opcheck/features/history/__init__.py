"""``opcheck history``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Look up",
    position=2,
    help="Show how an operator's status changed between releases, and why.",
    examples={
        "opcheck history cumsum": "what changed it, release by release",
        "opcheck history nn.GroupNorm --macos 14": "on an older macOS",
        "opcheck history F.grid_sample -f md -o history.md": "as Markdown",
    },
    documents={"history": "opcheck.lookup.history:HistoryAnswer"},
)
