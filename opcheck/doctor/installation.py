"""The checks of the installed torch and of the Python below it."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from opcheck.doctor.check import Check, Examined, found, install, page
from opcheck.model import Finding
from opcheck.oplists.pythons import load_wheels
from opcheck.versions import Version

#: The platform's own packages; the last patch of each line is what the lists hold, and no line had ten.
_PATCHES = range(10)


def _missing(examined: Examined) -> Iterator[Finding]:
    if examined.environment.torch is None:
        lines = examined.installable()
        yield found(
            message="torch is not installed for this Python",
            hint=install(lines[-1]) if lines else "opcheck explain OC311",
        )


def _no_wheel(examined: Examined) -> Iterator[Finding]:
    python = Version.parse(examined.environment.python.version)
    wheels = load_wheels()
    span = wheels.by_python.get(python)
    if span is None and not examined.environment.torch:
        newest = wheels.pythons(examined.lines[-1])
        yield found(
            message=f"no torch in the lists has a wheel for Python {python} on a Mac",
            hint=f"make the environment with Python {newest[-1]}: uv venv --python {newest[-1]}",
        )
    for one in examined.requirements:
        asked = _allowed(one.text, examined)
        with_wheel = [line for line in asked if span is not None and line in span]
        if asked and not with_wheel:
            usable = wheels.pythons(asked[-1])
            names = ", ".join(map(str, usable)) or "no Python that is known"
            yield found(
                message=f"{one.text} asks for a torch that has no macOS wheel for Python {python}: "
                f"torch {asked[-1]} has one for {names}",
                hint=f"uv venv --python {usable[-1]}" if usable else "ask for another torch",
                locations=(one.place,),
            )


def _allowed(text: str, examined: Examined) -> list[Version]:
    """The listed release lines that a requirement of torch allows; of another package none."""
    try:
        asked = Requirement(text)
    except InvalidRequirement:
        return []
    if canonicalize_name(asked.name) != "torch":
        return []
    return [
        line
        for line in examined.lines
        if any(asked.specifier.contains(f"{line}.{patch}") for patch in _PATCHES)
    ]


def _without_mps(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is None or torch.built is not False:
        return
    conda = torch.installer == "conda"
    again = (
        "conda install --force-reinstall 'pytorch=*=*mps*' or, without conda's own"
        if conda
        else "install the released wheel"
    )
    yield found(
        message=f"torch {torch.version} was built without MPS"
        + (f" (installed by {torch.installer})" if torch.installer else ""),
        hint=f"{again}: pip install --force-reinstall torch=={torch.version.partition('+')[0]}",
    )


def _unavailable(examined: Examined) -> Iterator[Finding]:
    environment = examined.environment
    torch, macos, machine = environment.torch, environment.macos, environment.machine
    if torch is None or not torch.built or torch.available is not False:
        return
    too_old = macos is not None and examined.listed and macos < examined.minimum(examined.torch)
    if too_old or machine.virtual or machine.hosted or not machine.apple_silicon:
        return
    yield found(
        message=f"torch {torch.version} has MPS, and says that it is not available; nothing that opcheck "
        "knows of is the reason",
        hint="log in at the Mac's own screen once and try again: a session without a GPU, such as one of "
        "a daemon, has none; python -c 'import torch; torch.zeros(1, device=\"mps\")' says torch's own reason",
    )


def _fails(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is not None and torch.problem:
        yield found(
            message=f"torch {torch.version} is installed and cannot be imported",
            hint=f"pip install --force-reinstall torch=={torch.version.partition('+')[0]}",
            prints=torch.problem,
        )


def _nightly(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is not None and (".dev" in torch.version or "a0" in torch.version):
        kind = "a nightly build" if ".dev" in torch.version else "built from source"
        yield found(
            message=f"torch {torch.version} is {kind}: the lists are of releases, and what they say of "
            f"{torch.line} need not hold",
            hint=f"for an answer that holds: {install(examined.lines[-1])}",
        )


def _not_listed(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is None or examined.listed:
        return
    newer = torch.line > examined.lines[-1]
    yield found(
        message=f"the op lists hold no torch {torch.line}"
        + (": it is newer than they are" if newer else ""),
        hint="pip install --upgrade opcheck" if newer else install(examined.lines[-1]),
    )


CHECKS = (
    Check(
        id="OC310",
        slug="torch_missing",
        title="No torch is installed",
        severity="error",
        needs=("the version of Python",),
        check=_missing,
        page=page(
            what="The Python that runs opcheck has no torch.",
            why="Often it is another Python than the one that has it: opcheck looks at its own.",
            before="$ opcheck doctor    # from another environment",
            after="$ .venv/bin/python -m pip install opcheck torch && .venv/bin/python -m opcheck doctor",
            evidence="the metadata of the installed packages; op_lists/pythons.yaml for what pip would find.",
        ),
    ),
    Check(
        id="OC311",
        slug="python_without_wheel",
        title="A Python for which no such torch has a macOS wheel",
        severity="error",
        needs=("a Mac", "the version of Python"),
        check=_no_wheel,
        page=page(
            what="pip finds no wheel for macOS: no release has one for this Python, or none that the requirements allow.",
            why="Each release has wheels for a few versions of Python; a newer Python comes some months before the torch for "
            "it, an older one is dropped.",
            before='$ python3.10 -m pip install "torch==2.15.*"\nERROR: No matching distribution found for torch',
            after="$ uv venv --python 3.13 && uv pip install torch",
            evidence="op_lists/pythons.yaml: what the package index had for macOS arm64, with the date.",
        ),
    ),
    Check(
        id="OC312",
        slug="torch_without_mps",
        title="A torch that was built without MPS",
        severity="error",
        needs=("a Mac", "an import of torch"),
        check=_without_mps,
        page=page(
            what="torch.backends.mps.is_built() is False.",
            why="A build for the CPU alone: of a distribution such as conda, or from source with USE_MPS=0. No setting "
            "brings the backend back.",
            before="$ python -c 'import torch; print(torch.backends.mps.is_built())'\nFalse",
            after="$ pip install --force-reinstall torch",
            evidence="torch.backends.mps.is_built(), asked in a process of its own.",
        ),
    ),
    Check(
        id="OC313",
        slug="mps_unavailable",
        title="MPS says that it is not available, for no reason that is known",
        severity="error",
        needs=("a Mac", "an import of torch"),
        check=_unavailable,
        page=page(
            what="The build has MPS, macOS and chip are those that it asks for, and torch.backends.mps.is_available() is False.",
            why="torch found no Metal device. Where a process may not use the GPU, there is none for it.",
            before="$ ssh mac python train.py    # nobody is logged in at its screen",
            after="$ python -c 'import torch; torch.zeros(1, device=\"mps\")'    # prints torch's own reason",
            evidence="torch.backends.mps.is_available(); what opcheck proposes follows from how macOS gives out GPUs, and was "
            "not observed on a Mac.",
        ),
    ),
    Check(
        id="OC314",
        slug="torch_import_fails",
        title="torch is installed and cannot be imported",
        severity="error",
        needs=("an installed torch",),
        check=_fails,
        page=page(
            what="`import torch` raised or ended its process, in a child process of opcheck's.",
            why="A library of another architecture (OC304), an installation that broke off, a file named torch.py beside the "
            "program, or a variable that torch could not read (OC322).",
            before="ImportError: dlopen(.../torch/_C.cpython-311-darwin.so): ... incompatible architecture",
            after="$ pip install --force-reinstall torch",
            evidence="the last line that the child process printed.",
        ),
    ),
    Check(
        id="OC315",
        slug="torch_nightly",
        title="A torch that is no release",
        severity="note",
        needs=("an installed torch",),
        check=_nightly,
        page=page(
            what="The version has .dev in it, or is that of a checkout.",
            why="Registrations change from day to day between releases; opcheck reads released wheels.",
            before="$ pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cpu",
            after="$ pip install torch",
            evidence="the version in the metadata of the package.",
        ),
    ),
    Check(
        id="OC316",
        slug="torch_not_listed",
        title="A torch that the op lists do not know",
        severity="warning",
        needs=("an installed torch",),
        check=_not_listed,
        page=page(
            what="The lists hold no such release line.",
            why="Nothing is known of it: the checks of the pair of torch and macOS are left out.",
            before="$ opcheck doctor    # torch 1.12",
            after="$ opcheck lists info; opcheck lists build 2.15.0    # or a newer opcheck",
            evidence="op_lists/releases.yaml.",
        ),
    ),
)
