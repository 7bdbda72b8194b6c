"""OC121: modules that the run never called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opcheck.common.text import any_layer, plural
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding

_SHOWN = 5


@audit_rule("OC121", "note")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding that lists them all, unless the run broke off: then the rest is unknown."""
    names = audited.trace.uncalled
    if not names or not audited.trace.complete:
        return
    kinds = Counter(any_layer(name) for name in names)
    shown = [f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.items()]
    more = f" and {len(shown) - _SHOWN} more kinds" if len(shown) > _SHOWN else ""
    yield finding(
        message=f"{plural(len(names), 'module')} never called, so not judged: "
        f"{', '.join(shown[:_SHOWN])}{more}",
        hint="give inputs that reach them with --input or --config",
        count=len(names),
    )
