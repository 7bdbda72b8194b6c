"""``opcheck sweep``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit many models",
    position=3,
    help="Audit whole libraries of models over many releases and macOS versions.",
    examples={
        "opcheck sweep torchvision:resnet18 timm:vit_tiny_patch16_224 --folder sweep": "two models",
        'opcheck sweep "transformers:Bert*" --torch ">=2.9" --folder sweep': "a pattern",
        "opcheck sweep report sweep": "the summary",
    },
)
