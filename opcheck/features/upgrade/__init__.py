"""``opcheck upgrade``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=4,
    help="Find the torch or macOS that removes a model's findings, and what it breaks.",
    examples={
        "opcheck upgrade torchvision:raft_small": "which release removes the findings",
        "opcheck upgrade model.py:Net --torch 2.6 --macos 14": "from where you are",
        "opcheck upgrade timm:resnet50 --json": "for a script",
    },
    documents={"upgrade": "opcheck.features.upgrade.advice:Advice"},
)
