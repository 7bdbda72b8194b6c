"""``opcheck site``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Maintain and publish",
    position=3,
    help="Write the op lists, and a sweep's models, as static pages with a search.",
    examples={
        "opcheck site build -o site": "a page for every operator and release",
        "opcheck site build -o site --sweep sweep": "with a sweep's models",
        "opcheck matrix -f html -o coverage.html": "one page alone",
    },
)
