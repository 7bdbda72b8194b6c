"""The checks of the machine: macOS, chip, Rosetta, virtual machines, memory."""

from collections.abc import Iterator

from opcheck.common.text import filesize, plural
from opcheck.common.versions import MACOS_MAJORS, Span, Version
from opcheck.data.macs import load_macs
from opcheck.data.packages import load_wheels
from opcheck.data.watermarks import watermarks
from opcheck.features.doctor.check import Examined, finding, install, rule
from opcheck.model.records import Finding

_GIB = 1 << 30
#: GB; Apple sells none with less, and programs for GPUs are seldom written for so little.
_LITTLE = 8
#: the facts of a pair of torch and macOS
_PAIR = ("a Mac", "the macOS version", "an installed torch that the lists cover")


@rule("OC301", "error", *_PAIR)
def _too_old(examined: Examined) -> Iterator[Finding]:
    macos = examined.environment.macos
    minimum = examined.minimum(examined.torch)
    if macos is None or macos >= minimum:
        return
    lines = examined.installable()
    older = f"; or, on this macOS: {install(lines[-1])}" if lines else ""
    yield finding(
        message=f"torch {examined.torch} starts its MPS backend on macOS {minimum} and newer; this is macOS {macos}",
        hint=f"update macOS to {minimum} or newer: softwareupdate --list{older}",
        prints=examined.lists.release(str(examined.torch)).minimum_macos_text,
    )


@rule("OC302", "warning", *_PAIR, "the version of Python")
def _wrong_results(examined: Examined) -> Iterator[Finding]:
    macos, torch = examined.environment.macos, examined.torch
    if macos is None or macos < examined.minimum(torch):
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
        yield finding(
            message=f"torch {torch} has {plural(len(here), 'known wrong result')} that macOS "
            f"{macos} causes; {where} does not have {', '.join(sorted(mended))}",
            hint=f"{mend}; whether a model makes such calls: opcheck audit MODEL --torch {torch} --macos {macos}",
            count=len(here),
        )


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


@rule("OC303", "error", "a Mac", "the chip")
def _intel(examined: Examined) -> Iterator[Finding]:
    if examined.environment.machine.apple_silicon:
        return
    span = load_wheels().intel
    lines = [line for line in examined.lines if line in span]
    yield finding(
        message=f"this Mac has an Intel processor; the last torch with a wheel for it is {lines[-1]}",
        hint=f"stay with it, on the CPU: {install(lines[-1])}; or use a Mac with Apple silicon",
    )


@rule("OC304", "error", "a Mac", "the chip")
def _rosetta(examined: Examined) -> Iterator[Finding]:
    machine, python = examined.environment.machine, examined.environment.python
    if machine.apple_silicon and python.architecture == "x86_64":
        rosetta = ", under Rosetta" if machine.translated else ""
        anew = (
            "CONDA_SUBDIR=osx-arm64 conda create -n arm64 python=3.12"
            if python.conda
            else "/opt/homebrew/bin/python3 -m venv .venv"
        )
        yield finding(
            message="this Python is built for Intel processors and runs on "
            f"{machine.chip or 'Apple silicon'}{rosetta}: "
            "pip gives it the torch of Intel Macs, which ends with 2.2",
            hint=f"install a Python for arm64 and make a new environment: {anew} "
            "(python3 -c 'import platform; print(platform.machine())' then prints arm64)",
        )


@rule("OC305", "warning", "a Mac")
def _virtual(examined: Examined) -> Iterator[Finding]:
    machine = examined.environment.machine
    hosted = machine.hosted == "GitHub-hosted"
    if not (machine.virtual or hosted or machine.model.startswith("VirtualMac")):
        return
    yield finding(
        message=(
            "this runner hosted by GitHub is a virtual machine: MPS runs on its virtual GPU, with about 1 GB of memory"
            if hosted
            else "macOS runs in a virtual machine: MPS runs on a virtual GPU, or raises at the first tensor"
        ),
        hint="test small models there (below 1 GB, each in a process of its own); opcheck audit MODEL predicts the "
        "rest on any machine; results of a virtual GPU may differ from those of a Mac",
        prints="MPS backend out of memory (MPS allocated: 1024.00 MB). Tried to allocate 256 bytes on shared pool.",
    )


@rule("OC306", "note", "a Mac", "the macOS version", "the memory")
def _memory(examined: Examined) -> Iterator[Finding]:
    machine, macos = examined.environment.machine, examined.environment.macos
    size = (machine.memory or 0) // _GIB
    if machine.memory is None or macos is None or size > _LITTLE:
        return
    smallest = load_macs()[0].on(macos)
    asked = examined.environment.torch
    seen = asked.recommended if asked else None
    recommended = seen or smallest.nbytes * size // _LITTLE
    high = watermarks(examined.environment.variables, examined.torch).high
    limit = f"raises above {filesize(int(recommended * high))}" if high else "has no limit"
    claim = "torch reports that Metal recommends" if seen else "Metal is expected to recommend"
    yield finding(
        message=f"{size} GiB of memory: {claim} at most {filesize(recommended)} of it for the GPU, and torch {limit}",
        hint=f"whether a model fits: opcheck audit MODEL --memory {size}",
    )


@rule("OC307", "note", "a Mac", "the macOS version")
def _not_listed(examined: Examined) -> Iterator[Finding]:
    macos = examined.environment.macos
    if macos is not None and macos.major > MACOS_MAJORS[-1]:
        yield finding(
            message=f"macOS {macos} is newer than the op lists: it is judged as {MACOS_MAJORS[-1]}",
            hint="pip install --upgrade opcheck",
        )
