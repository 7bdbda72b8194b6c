"""OC150: a call loses digits that float64 keeps."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.remedies import for_kind
from opcheck.rules.rule import Audited, Rule


def _check(audited: Audited) -> Iterator[Finding]:
    for run in audited.precision:
        if run.divergence is not None:
            line = run.divergence
            yield Finding(
                rule="OC150",
                severity="warning",
                message=f"{line.op}: in {run.dtype} it loses digits by itself: relative error "
                f"{line.local:.1e}, from inputs that are off by {line.inherited:.1e}",
                hint=_way_out(line.op, audited),
                op=line.op,
                locations=(line.place,),
            )
        for event in run.events:
            if event.kind != "flips":
                yield Finding(
                    rule="OC150",
                    severity="warning",
                    message=f"{event.op}: {event.kind} in {run.dtype}, in {event.elements:,} of "
                    f"{event.of:,} elements",
                    hint="scale what comes in, or keep this part in float32",
                    op=event.op,
                    locations=(event.place,),
                )


def _way_out(op: str, audited: Audited) -> str:
    """The page of the remedy for the operator, where there is one."""
    remedy = for_kind(op.partition(".")[0], audited.target)
    other = f"another way (opcheck explain {remedy.id})" if remedy else "another way"
    return (
        f"compute this part {other}, or keep it on the CPU in float64 (opcheck explain keep_on_cpu)"
    )


RULE = Rule(
    id="OC150",
    slug="precision",
    title="A call loses digits that float64 keeps",
    severity="warning",
    check=_check,
    page="""
**What.** `--precision` ran the model on this machine's CPU in float32 (or float16, bfloat16), and
each call of it again in float64. The finding names the first call whose own error is larger than
the limit (1e-5 for float32, 2e-2 for float16, 1e-1 for bfloat16), and each line where numbers
become infinite, not a number, or all zero, and float64's do not.

**Why.** MPS has no float64. Most models need none, but some steps lose all their digits without it:
a variance as the difference of two large means, the sine of a large angle, a long running sum, an
exponential that is not shifted first. A call's own error is what it makes of float64's values, each
rounded to its dtype; what it only passes on is not its fault.

**Before.**

```python
variance = (x * x).mean() - x.mean() ** 2
```

**After.**

```python
variance = (x - x.mean()).square().mean()
```

**Way out.** Compute that step in another way that keeps the digits, or keep it on the CPU:
`opcheck explain` lists the remedies, from `variance` and `cumsum` to `keep_on_cpu`. The report says
how many bytes that costs. The finding does not change the exit code.

**Evidence.** Numbers of this machine's CPU. Kernels of a Mac sum in another order and may lose
more or less; nothing was tried on one.

**Since.** opcheck 0.1.
""",
)
