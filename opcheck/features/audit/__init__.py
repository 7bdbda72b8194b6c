"""``opcheck audit``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=1,
    help="Audit a model: predict what each operator call does on the target Mac.",
    examples={
        "opcheck audit torchvision:resnet18": "a library's model; no weights are needed",
        "opcheck audit model.py:Net --input 1x3x224x224 --torch 2.9": "your own, on a release",
        "opcheck audit transformers:BertModel --mode train -o report.html": "a training step",
    },
    documents={"report": "opcheck.model.records:Report"},
    pages={"Report": "opcheck.render.report"},
)
