"""``opcheck kernels``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Maintain and publish",
    position=1,
    help="List, compare and run the Metal kernels that a torch release ships.",
    examples={
        "opcheck kernels list --torch 2.15 'softmax*'": "the kernels of a release",
        "opcheck kernels diff 2.14 2.15": "what is new, gone or of other code",
        "opcheck kernels test 'softmax*'": "run them on this CPU",
    },
)
