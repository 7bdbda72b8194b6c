"""``opcheck compile``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=2,
    help="Say which variant of torch.compile works, up to the Metal kernels.",
    examples={
        "opcheck compile model.py:Net": "eager, aot_eager, Inductor: what works",
        "opcheck compile transformers:BertModel --config num_hidden_layers=2": "a small one",
        "opcheck compile timm:resnet18 --check-metal": "also the Metal kernels themselves",
    },
    documents={"compile": "opcheck.features.compile.judged:CompileReport"},
)
