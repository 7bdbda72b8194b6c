"""Results that the release's own Metal kernels compute outside of the CPU's band, on the run's own values."""

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.judge.rules.rule import Audited, audit_rule, finding, sentences
from opcheck.model.records import Finding, WrongNumbers, WrongSample


@audit_rule("OC151", "error")
def find_wrong_numbers(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each line and kernel with wrong results, the furthest off first."""
    for line in (line for run in audited.numbers for line in run.wrong):
        yield finding(
            message=f"{line.op}: {line.elements:,} of {plural(line.compared, 'result')} in {line.dtype} "
            f"{'is' if line.elements == 1 else 'are'} wrong: {_example(line.smallest)}{_worst(line)}",
            hint=_hint(line, audited),
            op=line.op,
            count=line.calls,
            locations=(line.place,),
        )


def _example(sample: WrongSample) -> str:
    return f"{', '.join(sample.operands)} gives {sample.result}, right {sample.expected}"


def _worst(line: WrongNumbers) -> str:
    return "" if line.worst == line.smallest else f"; the worst: {_example(line.worst)}"


def _hint(line: WrongNumbers, audited: Audited) -> str:
    by_id = audited.lists.statements.by_id
    stated = (by_id[name] for name in line.statements if name in by_id)
    return sentences(
        *(f"{each.id}: {each.way_out.rstrip('.')}" for each in stated),
        f"the kernel of torch {line.mended} is right here"
        if line.mended
        else "no later release that is kept here is right: compute it on the CPU",
    )
