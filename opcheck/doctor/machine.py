"""The checks of the machine: macOS, chip, Rosetta, virtual machines, memory."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.doctor.check import Check, Examined, found, install, page
from opcheck.memory.macs import ratio
from opcheck.model import Finding
from opcheck.oplists.macs import load_macs
from opcheck.oplists.pythons import load_wheels
from opcheck.oplists.statement_model import Statement
from opcheck.versions import MACOS_MAJORS, Target, Version
from opcheck.wording import filesize, plural

_GIB = 1 << 30
#: GB; Apple sells none with less, and programs for GPUs are seldom written for so little.
_LITTLE = 8


def _too_old(examined: Examined) -> Iterator[Finding]:
    macos = examined.environment.macos
    minimum = examined.minimum(examined.torch)
    if macos is None or macos >= minimum:
        return
    lines = examined.installable()
    older = f"; or, on this macOS: {install(lines[-1])}" if lines else ""
    yield found(
        message=f"torch {examined.torch} starts its MPS backend on macOS {minimum} and newer; "
        f"this is macOS {macos}",
        hint=f"update macOS to {minimum} or newer: softwareupdate --list{older}",
        prints=examined.lists.release(str(examined.torch)).minimum_macos_text,
    )


def _wrong_results(examined: Examined) -> Iterator[Finding]:
    macos, torch = examined.environment.macos, examined.torch
    if macos is None or macos < examined.minimum(torch):
        return
    here = _of_pair(examined, torch, macos)
    newer = [line for line in examined.installable() if line > torch]
    left = {line: here & _of_pair(examined, line, macos) for line in newer}
    if left and len(least := min(left.values(), key=len)) < len(here):
        line = next(one for one in newer if left[one] == least)
        mended, where, mend = here - least, f"torch {line}", install(line)
    else:
        systems = [Version(major) for major in MACOS_MAJORS if Version(major) > macos]
        after = {system: here & _of_pair(examined, torch, system) for system in systems}
        system = min(after, key=lambda one: (len(after[one]), one), default=macos)
        mended = here - after.get(system, here)
        where, mend = f"macOS {system}", f"update macOS to {system}: softwareupdate --list"
    if mended:
        yield found(
            message=f"torch {torch} on macOS {macos} is known for {plural(len(here), 'wrong result')} "
            f"that come with this macOS; {where} is without {', '.join(sorted(mended))}",
            hint=f"{mend}; whether a model makes such calls: "
            f"opcheck audit MODEL --torch {torch} --macos {macos}",
            count=len(here),
        )


def _of_pair(examined: Examined, torch: Version, macos: Version) -> set[str]:
    """The advisories that hold for a torch release on one macOS and not on every macOS."""

    def of_macos(one: Statement) -> bool:
        bound = one.macos.since is not None or one.macos.until is not None
        return one.sort == "advisory" and one.effect in {"aborts", "wrong_result"} and bound

    statements = examined.lists.statements.by_id.values()
    return {s.id for s in statements if of_macos(s) and torch in s.torch and macos in s.macos}


def _intel(examined: Examined) -> Iterator[Finding]:
    if examined.environment.machine.apple_silicon:
        return
    span = load_wheels().intel
    lines = [line for line in examined.lines if line in span]
    yield found(
        message=f"this Mac has an Intel processor; the last torch with a wheel for it is {lines[-1]}",
        hint=f"stay with it, on the CPU: {install(lines[-1])}; or use a Mac with Apple silicon",
    )


def _rosetta(examined: Examined) -> Iterator[Finding]:
    machine, python = examined.environment.machine, examined.environment.python
    if machine.apple_silicon and python.architecture == "x86_64":
        rosetta = ", under Rosetta" if machine.translated else ""
        anew = (
            "CONDA_SUBDIR=osx-arm64 conda create -n arm64 python=3.12"
            if python.conda
            else "/opt/homebrew/bin/python3 -m venv .venv"
        )
        yield found(
            message=f"this Python is built for Intel processors and runs on {machine.chip or 'Apple silicon'}"
            f"{rosetta}: "
            "pip gives it the torch of Intel Macs, which ends with 2.2",
            hint=f"install a Python for arm64 and make the environment anew: {anew} "
            "(python3 -c 'import platform; print(platform.machine())' then says arm64)",
        )


def _virtual(examined: Examined) -> Iterator[Finding]:
    machine = examined.environment.machine
    hosted = machine.hosted == "GitHub-hosted"
    if not (machine.virtual or hosted or machine.model.startswith("VirtualMac")):
        return
    yield found(
        severity="error" if hosted else "warning",
        message=(
            "this is a runner hosted by GitHub, a virtual machine whose GPU MPS cannot use, whatever "
            "torch.backends.mps.is_available() says"
            if hosted
            else "macOS runs in a virtual machine: MPS may say that it is available and still fail at the "
            "first tensor"
        ),
        hint="run on the CPU there, and ask for the Mac from there: opcheck audit MODEL; what needs MPS "
        "runs on a Mac of one's own, as a self-hosted runner (runs-on: [self-hosted, macOS, ARM64])",
        prints="MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, "
        "max allowed: ...). Tried to allocate ... on private pool.",
    )


def _memory(examined: Examined) -> Iterator[Finding]:
    machine, macos = examined.environment.machine, examined.environment.macos
    size = (machine.memory or 0) // _GIB
    if machine.memory is None or macos is None or size > _LITTLE:
        return
    smallest = load_macs()[0].on(macos)
    asked = examined.environment.torch
    seen = asked.recommended if asked else None
    recommended = seen or smallest.nbytes * size // _LITTLE
    target = Target(torch=examined.torch, macos=macos)
    said = "torch says that Metal recommends" if seen else "Metal is expected to recommend"
    yield found(
        message=f"{size} GiB of memory: {said} at most {filesize(recommended)} of it for "
        f"the GPU, and torch raises above {filesize(int(recommended * ratio('HIGH', target)))}",
        hint=f"whether a model fits: opcheck audit MODEL --memory {size}",
    )


def _not_listed(examined: Examined) -> Iterator[Finding]:
    macos = examined.environment.macos
    if macos is not None and macos.major > MACOS_MAJORS[-1]:
        yield found(
            message=f"macOS {macos} is newer than the op lists: nothing is known about it",
            hint="pip install --upgrade opcheck",
        )


_PAIR = ("a Mac", "the macOS version", "an installed torch that the lists hold")

CHECKS = (
    Check(
        id="OC301",
        slug="macos_too_old",
        title="The macOS is older than the one that this torch asks for",
        severity="error",
        needs=_PAIR,
        check=_too_old,
        page=page(
            what="torch.backends.mps.is_available() is False: this release starts its MPS backend on a newer "
            "macOS only.",
            why="Each release has a minimum of its own: 12.3 up to torch 2.5, 13.0 up to 2.8, 14.0 up to 2.14, 15.0 "
            "in 2.15. The platform in a wheel's name is not it: pip installs torch 2.9 on macOS 11.",
            before='$ pip install "torch==2.15.*"    # on macOS 14',
            after='$ pip install "torch==2.14.*"',
            evidence="`minimum_macos_text` in op_lists/releases.yaml: the sentence in each wheel's library.",
        ),
    ),
    Check(
        id="OC302",
        slug="known_wrong_results",
        title="This torch on this macOS is known for wrong results that another pair has not",
        severity="warning",
        needs=(*_PAIR, "the version of Python"),
        check=_wrong_results,
        page=page(
            what="Advisories hold for this torch release on this macOS, a newer torch or macOS is without them, and "
            "pip can install that torch.",
            why="Some faults are in Apple's graph library, and come with a macOS until torch goes around them. "
            "They raise nothing. What a pair cannot avoid is not told here; the audit of a model tells all of "
            "what its own calls meet (OC112).",
            before='$ pip install "torch==2.9.*"    # on macOS 26',
            after='$ pip install "torch==2.15.*"',
            evidence="op_lists/advisories, each statement with its issue; `opcheck audit` names them.",
        ),
    ),
    Check(
        id="OC303",
        slug="intel_mac",
        title="A Mac with an Intel processor",
        severity="error",
        needs=("a Mac", "the chip"),
        check=_intel,
        page=page(
            what="The processor is Intel's.",
            why="PyTorch stopped to build for Intel Macs after 2.2: pip finds no newer torch, and what the op lists say was "
            "read out of the wheels for Apple silicon.",
            before="$ pip install --upgrade torch    # 2.2.2, or no matching distribution",
            after='$ pip install "torch==2.2.*"      # and device = "cpu"',
            evidence="op_lists/pythons.yaml, asked of the package index; "
            "https://github.com/pytorch/pytorch/pull/141182",
        ),
    ),
    Check(
        id="OC304",
        slug="x86_python",
        title="A Python for Intel processors on Apple silicon",
        severity="error",
        needs=("a Mac", "the chip"),
        check=_rosetta,
        page=page(
            what="The Mac has Apple's processor, and this Python is built for Intel's: Rosetta translates it.",
            why="pip installs what fits the interpreter: the torch of Intel Macs, whose last release is 2.2. The usual cause is "
            "a conda or Homebrew that came from an Intel Mac (its folder is /usr/local, not /opt/homebrew).",
            before="$ python3 -c 'import platform; print(platform.machine())'\nx86_64",
            after="$ /opt/homebrew/bin/python3 -m venv .venv && . .venv/bin/activate\n"
            "$ python3 -c 'import platform; print(platform.machine())'\narm64",
            evidence="sysctl.proc_translated and machdep.cpu.brand_string beside platform.machine().",
        ),
    ),
    Check(
        id="OC305",
        slug="virtual_machine",
        title="macOS in a virtual machine",
        severity="warning",
        needs=("a Mac",),
        check=_virtual,
        page=page(
            what="kern.hv_vmm_present is 1, the model is a VirtualMac, or a variable says that it is a runner hosted "
            "by GitHub.",
            why="GitHub's documentation says that MPS does not work there, because of Apple's Virtualization Framework. "
            "People report that it says to be available, and that the first tensor raises: out of memory, with none allocated.",
            before="runs-on: macos-15\nsteps: [{run: pytest -m mps}]",
            after="runs-on: ubuntu-latest\nsteps: [{run: opcheck audit app.model:Net}]",
            evidence="https://github.com/actions/runner-images/issues/9918, "
            "https://github.com/actions/runner-images/issues/11899, and GitHub's documentation of arm64 macOS runners.",
        ),
    ),
    Check(
        id="OC306",
        slug="little_memory",
        title="Little memory for a GPU",
        severity="note",
        needs=("a Mac", "the macOS version", "the memory"),
        check=_memory,
        page=page(
            what="The Mac has 8 GB of memory or less.",
            why="The GPU shares the memory with everything else. Metal recommends a part of it; torch gives cached memory back "
            "from 1.4 times that on and raises above 1.7 times.",
            before="$ opcheck audit app.model:Net",
            after="$ opcheck audit app.model:Net --memory 8    # which line holds the memory, and what would lower it",
            evidence="op_lists/macs.yaml: what Macs reported; torch.mps.recommended_max_memory() where torch has it.",
        ),
    ),
    Check(
        id="OC307",
        slug="macos_not_listed",
        title="A macOS that the op lists do not know",
        severity="note",
        needs=("a Mac", "the macOS version"),
        check=_not_listed,
        page=page(
            what="The macOS is newer than the newest that a statement in the lists speaks of.",
            why="Nothing is known of it, which is not the same as nothing being wrong.",
            before="$ opcheck doctor    # macOS 99",
            after="$ pip install --upgrade opcheck",
            evidence="the macOS versions in op_lists/limitations and op_lists/advisories.",
        ),
    ),
)
