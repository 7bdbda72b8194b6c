"""The checks of the machine: macOS, chip, Rosetta, virtual machines, memory."""

from collections.abc import Iterator
from typing import Any

from opcheck.common.text import filesize, plural
from opcheck.common.versions import MACOS_MAJORS, Span, Version
from opcheck.data.environment import watermarks
from opcheck.data.macs import MACS
from opcheck.data.packages import PYTHONS
from opcheck.features.doctor.check import Examined, finding, install, rule
from opcheck.model.records import Finding

_GIB = 1 << 30
#: GB; Apple sells none with less, and programs for GPUs are seldom written for so little.
_LITTLE = 8


@rule("OC301")
def _too_old(examined: Examined) -> Iterator[Finding]:
    torch, macos, minimum = examined.torch, examined.macos, examined.minimum(examined.torch)
    if macos < minimum:
        lines = examined.installable()
        older = f"; or, on this macOS: {install(lines[-1])}" if lines else ""
        prints = examined.lists.release(str(torch)).minimum_macos_text
        yield finding("macOS too old", torch=torch, minimum=minimum, macos=macos, older=older, prints=prints)


@rule("OC302")
def _wrong_results(examined: Examined) -> Iterator[Finding]:
    macos, torch = examined.macos, examined.torch
    if macos < examined.minimum(torch):
        return
    here = _wrong_on(examined, torch, macos)
    newer = [line for line in examined.installable() if line > torch]
    left = {line: here & _wrong_on(examined, line, macos) for line in newer}
    if left and len(least := min(left.values(), key=len)) < len(here):
        line = next(version for version in newer if left[version] == least)
        mended, where, mend = here - least, f"torch {line}", install(line)
    else:
        systems = [Version(major) for major in MACOS_MAJORS if Version(major) > macos]
        after = {system: here & _wrong_on(examined, torch, system) for system in systems}
        system = min(after, key=lambda each: (len(after[each]), each), default=macos)
        mended = here - after.get(system, here)
        where, mend = f"macOS {system}", f"update macOS to {system}: softwareupdate --list"
    if mended:
        words: dict[str, Any] = {"wrong": plural(len(here), "known wrong result"), "mended": ", ".join(sorted(mended))}
        yield finding("wrong results", count=len(here), torch=torch, macos=macos, where=where, mend=mend, **words)


def _wrong_on(examined: Examined, torch: Version, macos: Version) -> set[str]:
    """Return the advisories that apply to a torch release on this macOS, but not on every macOS; no rare ones."""
    return {
        statement.id
        for statement in examined.lists.statements.by_id.values()
        if statement.sort == "advisory"
        and statement.effect in {"aborts", "wrong_result"}
        and not statement.rare
        and statement.macos != Span()
        and torch in statement.torch
        and macos in statement.macos
    }


@rule("OC303")
def _intel(examined: Examined) -> Iterator[Finding]:
    if not examined.environment.machine.apple_silicon:
        last = [line for line in examined.lines if line in PYTHONS.load().intel][-1]
        yield finding("intel", last=last, install=install(last))


@rule("OC304")
def _rosetta(examined: Examined) -> Iterator[Finding]:
    machine, python = examined.environment.machine, examined.environment.python
    if machine.apple_silicon and python.architecture == "x86_64":
        rosetta, chip = ", under Rosetta" if machine.translated else "", machine.chip or "Apple silicon"
        yield finding("conda for Intel" if python.conda else "Python for Intel", chip=chip, rosetta=rosetta)


@rule("OC305")
def _virtual(examined: Examined) -> Iterator[Finding]:
    machine = examined.environment.machine
    if machine.hosted == "GitHub-hosted":
        yield finding("hosted by GitHub")
    elif machine.virtual or machine.model.startswith("VirtualMac"):
        yield finding("virtual machine")


@rule("OC306")
def _memory(examined: Examined) -> Iterator[Finding]:
    environment = examined.environment
    size = (environment.machine.memory or 0) // _GIB
    if size > _LITTLE:
        return
    seen = environment.torch.recommended if environment.torch else None
    recommended = seen or MACS.load().sized[0].on(examined.macos).nbytes * size // _LITTLE
    high = watermarks(environment.variables).high
    limit = f"raises above {filesize(int(recommended * high))}" if high else "has no limit"
    claim = "torch reports that Metal recommends" if seen else "Metal is expected to recommend"
    yield finding("little memory", size=size, claim=claim, recommended=filesize(recommended), limit=limit)


@rule("OC307")
def _not_listed(examined: Examined) -> Iterator[Finding]:
    if examined.macos.major > MACOS_MAJORS[-1]:
        yield finding("newer macOS", macos=examined.macos, newest=MACOS_MAJORS[-1])
