"""The checks of the installed torch and of the Python below it."""

from collections.abc import Iterator

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from opcheck.common.errors import UsageError
from opcheck.common.versions import Version
from opcheck.data.extensions import LIBRARIES, paired_line
from opcheck.data.packages import Package, load_wheels, packages
from opcheck.features.doctor.check import Examined, finding, install, rule
from opcheck.model.records import Finding
from opcheck.source.rules.lacking import describe
from opcheck.source.scan_requirements import judge

#: The platform's own packages; the last patch of each line is in the lists, and no line had
#: ten.
_PATCHES = range(10)


@rule("OC310", "error", "the version of Python")
def _missing(examined: Examined) -> Iterator[Finding]:
    if examined.environment.torch is None:
        lines = examined.installable()
        yield finding(
            message="torch is not installed for this Python",
            hint=install(lines[-1]) if lines else "opcheck explain OC311",
        )


@rule("OC311", "error", "a Mac", "the version of Python")
def _no_wheel(examined: Examined) -> Iterator[Finding]:
    python = Version.parse(examined.environment.python.version)
    wheels = load_wheels()
    span = wheels.by_python.get(python)
    if span is None and not examined.environment.torch:
        newest = wheels.pythons(examined.lines[-1])
        yield finding(
            message=f"no torch in the lists has a wheel for Python {python} on a Mac",
            hint=f"make the environment with Python {newest[-1]}: uv venv --python {newest[-1]}",
        )
    for requirement in examined.requirements:
        asked = _allowed_lines(requirement.text, examined)
        with_wheel = [line for line in asked if span is not None and line in span]
        if asked and not with_wheel:
            usable = wheels.pythons(asked[-1])
            names = ", ".join(map(str, usable)) or "no Python that is known"
            yield finding(
                message=f"{requirement.text} requires a torch that has no macOS wheel for Python "
                f"{python}: torch {asked[-1]} supports {names}",
                hint=f"uv venv --python {usable[-1]}" if usable else "require another torch",
                locations=(requirement.place,),
            )


def _allowed_lines(text: str, examined: Examined) -> list[Version]:
    """The listed release lines that a requirement of torch allows; of another package none."""
    try:
        asked = Requirement(text)
    except InvalidRequirement:
        return []
    if canonicalize_name(asked.name) != "torch":
        return []
    allows = asked.specifier.contains
    return [line for line in examined.lines if any(allows(f"{line}.{p}") for p in _PATCHES)]


@rule("OC312", "error", "a Mac", "an import of torch")
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
    yield finding(
        message=f"torch {torch.version} was built without MPS"
        + (f" (installed by {torch.installer})" if torch.installer else ""),
        hint=f"{again}: pip install --force-reinstall torch=={torch.version.partition('+')[0]}",
    )


@rule("OC313", "error", "a Mac", "an import of torch")
def _unavailable(examined: Examined) -> Iterator[Finding]:
    environment = examined.environment
    torch, macos, machine = environment.torch, environment.macos, environment.machine
    if torch is None or not torch.built or torch.available is not False:
        return
    too_old = macos is not None and examined.is_listed and macos < examined.minimum(examined.torch)
    if too_old or machine.virtual or machine.hosted or not machine.apple_silicon:
        return
    yield finding(
        message=f"torch {torch.version} has MPS, which is not available for a reason that opcheck does not recognize",
        hint="log in at the Mac's own screen once and try again: the session of a daemon, for "
        "example, has no GPU; python -c 'import torch; torch.zeros(1, device=\"mps\")' "
        "prints torch's own reason",
    )


@rule("OC314", "error", "an installed torch")
def _fails(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is not None and torch.problem:
        yield finding(
            message=f"torch {torch.version} is installed but cannot be imported",
            hint=f"pip install --force-reinstall torch=={torch.version.partition('+')[0]}",
            prints=torch.problem,
        )


@rule("OC315", "note", "an installed torch")
def _nightly(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is not None and (".dev" in torch.version or "a0" in torch.version):
        kind = "a nightly build" if ".dev" in torch.version else "built from source"
        yield finding(
            message=f"torch {torch.version} is {kind}: the lists are of releases, and what they "
            f"say of {torch.line} may not apply",
            hint=f"for a reliable answer: {install(examined.lines[-1])}",
        )


@rule("OC316", "warning", "an installed torch")
def _not_listed(examined: Examined) -> Iterator[Finding]:
    torch = examined.environment.torch
    if torch is None or examined.is_listed:
        return
    newer = torch.line > examined.lines[-1]
    yield finding(
        message=f"the op lists have no torch {torch.line}" + (": it is newer than the lists" if newer else ""),
        hint="pip install --upgrade opcheck" if newer else install(examined.lines[-1]),
    )


@rule("OC330", "error", "an installed torch")
def _mismatch(examined: Examined) -> Iterator[Finding]:
    installed = {str(canonicalize_name(n)): v for n, v in examined.environment.packages.items()}
    torch = str(examined.torch)
    for library in LIBRARIES:
        try:
            line = str(Version.parse(installed.get(library, "")))
        except UsageError:
            continue
        releases = examined.lists.extensions.releases.get(library, ())
        known = next((release for release in releases if release.line == line), None)
        paired = paired_line(library, torch)
        if line == paired or (known is not None and known.admits(torch)):
            continue
        made_for = known.torch_line if known else "another torch"
        fitting = examined.lists.extensions.release(library, torch)
        fitting_line = fitting.line if fitting else paired
        mend, none = f'pip install "{library}=={fitting_line}.*"', ""
        if not fitting_line:
            mend, none = f"pip uninstall {library}", f"; no {library} was released with it"
        yield finding(
            message=f"{library} {installed[library]} was made for torch {made_for}, and torch "
            f"{torch} is installed{none}",
            hint=mend,
        )


@rule("OC331", "note", "a Mac")
def _without_wheel(examined: Examined) -> Iterator[Finding]:
    for name, version in examined.environment.packages.items():
        package = packages().by_name.get(canonicalize_name(name))
        if package is not None and not _has_wheel(package, version):
            yield finding(
                message=f"{describe(name, package)}, and {version} is installed: built from "
                "source, or without its kernels",
                hint=f"pip uninstall {name}; instead: {package.instead}",
            )


def _has_wheel(package: Package, version: str) -> bool:
    if package.fails:
        return True
    try:
        return bool(package.since) and Release(version) >= Release(package.since)
    except InvalidVersion:
        return False


@rule("OC332", "error", "requirements to read (--requirements)")
def _in_requirements(examined: Examined) -> Iterator[Finding]:
    for requirement in examined.requirements:
        for hit in judge(requirement.text, 1, requirement.severity):
            severity, places = hit.severity or requirement.severity, (requirement.place,)
            yield finding(severity=severity, message=hit.message, hint=hit.hint, locations=places)


@rule("OC327", "warning", "a script to read (--script)")
def _in_script(examined: Examined) -> Iterator[Finding]:
    yield from (replace(scanned, rule="") for scanned in examined.script or ())
