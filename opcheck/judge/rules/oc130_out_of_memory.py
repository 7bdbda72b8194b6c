"""OC130: the run takes more memory than the GPU of a Mac gives."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.text import filesize
from opcheck.judge.memory.macs import deciding, smallest
from opcheck.judge.rules.rule import Audited, audit_rule, finding, sentences
from opcheck.model.records import Finding, MacFit, Memory


@audit_rule("OC130", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding about the Mac that the user named, or one if no Mac has enough memory."""
    memory = audited.memory
    if memory is None:
        return
    mac = deciding(memory)
    if mac is not None and mac.state != "fits":
        yield _finding(memory, mac)


def _finding(memory: Memory, mac: MacFit) -> Finding:
    raises = mac.state == "raises"
    if not raises:
        why = f"Metal recommends {filesize(mac.working_set)}: it may swap and slow down"
    elif mac.prints.startswith("Invalid buffer"):
        why = "a tensor takes more than one buffer may"
    else:
        why = f"PyTorch raises above {filesize(mac.limit)}"
    enough = smallest(memory, "fits")
    return finding(
        severity="error" if raises else "warning",
        message=f"an estimated {filesize(memory.peak.total)} on a Mac of {mac.memory} GB: {why}",
        hint=sentences(
            *memory.advice,
            f"a Mac of {enough.memory} GB would do"
            if enough
            else f"as it is, no Mac up to {memory.macs[-1].memory} GB would do",
        ),
        prints=mac.prints,
        locations=(mac.place,) if mac.place else (),
    )
