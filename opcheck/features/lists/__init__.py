"""``opcheck lists``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Maintain and publish",
    position=2,
    help="Show or build the op lists that verdicts are based on.",
    examples={
        "opcheck lists": "the releases, their counts and age",
        "opcheck lists lint": "check the curated statements",
        "opcheck lists build 2.15.0": "read a release's wheel",
    },
)
