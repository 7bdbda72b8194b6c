"""``opcheck compare``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=5,
    help="Compare a real device's results with float64, operator by operator.",
    examples={
        "opcheck compare torchvision:resnet18 --device mps": "on a Mac",
        "opcheck compare model.py:Net --device cuda --mode train": "with gradients",
        "opcheck compare model.py:Net --device mps --time -o compare.html": "with times",
    },
    documents={"compare": "opcheck.numerics.compare.records:Comparison"},
)
