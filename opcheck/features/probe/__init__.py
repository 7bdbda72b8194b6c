"""``opcheck probe``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=6,
    help="Record what a device does with PyTorch's operator database, as evidence.",
    examples={
        "opcheck probe --device mps -o evidence.yaml": "all operators, as evidence",
        "opcheck probe --device mps --op 'linalg*'": "some",
        "opcheck probe --device cuda --dtype fp16": "one dtype",
    },
    documents={"evidence": "opcheck.data.device_evidence:Evidence"},
)
