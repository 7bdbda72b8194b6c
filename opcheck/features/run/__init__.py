"""``opcheck run``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=1,
    help="Run an unmodified program on an emulated Mac, or observe it on a real Mac.",
    examples={
        "opcheck run train.py --epochs 1": "the program as it is, on an emulated Mac",
        "opcheck run --torch 2.9 --macos 14 -o run.html train.py": "on an older one",
        "opcheck run -m pytest tests": "a module, such as a test suite",
    },
)
