"""The checks of the installed torch and of the Python below it."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from opcheck.common.errors import UsageError
from opcheck.common.versions import Version
from opcheck.data.extensions import LIBRARIES, paired_line
from opcheck.data.packages import PACKAGES, PYTHONS, Package
from opcheck.features.doctor.check import Examined, finding, install, rule
from opcheck.model.records import Finding
from opcheck.source.rules.lacking import describe
from opcheck.source.scan_requirements import judge

#: The platform's own packages; the last patch of each line is in the lists, and no line had
#: ten.
_PATCHES = range(10)


@rule("OC310")
def _missing(examined: Examined) -> Iterator[Finding]:
    if examined.environment.torch is None:
        lines = examined.installable()
        yield finding("no torch", hint=install(lines[-1]) if lines else "opcheck explain OC311")


@rule("OC311")
def _no_wheel(examined: Examined) -> Iterator[Finding]:
    python = Version.parse(examined.environment.python.version)
    wheels = PYTHONS.load()
    span = wheels.by_python.get(python)
    if span is None and not examined.environment.torch:
        yield finding("no wheel", python=python, newest=wheels.pythons(examined.lines[-1])[-1])
    for requirement in examined.requirements:
        asked = _allowed_lines(requirement.text, examined)
        if asked and not any(span is not None and line in span for line in asked):
            usable = wheels.pythons(asked[-1])
            names, newest = ", ".join(map(str, usable)), usable[-1] if usable else None
            text = "no wheel of the required torch" if usable else "no wheel at all"
            about: dict[str, Any] = {"required": requirement.text, "python": python, "torch": asked[-1]}
            yield finding(text, place=requirement.place, **about, usable=names, newest=newest)


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


@rule("OC312")
def _without_mps(examined: Examined) -> Iterator[Finding]:
    torch = examined.installed_torch
    if torch.built is False:
        text = "conda without MPS" if torch.installer == "conda" else "wheel without MPS"
        installer = f" (installed by {torch.installer})" if torch.installer else ""
        yield finding(text, version=torch.version, release=torch.release, installer=installer)


@rule("OC313")
def _unavailable(examined: Examined) -> Iterator[Finding]:
    torch, macos, machine = examined.installed_torch, examined.environment.macos, examined.environment.machine
    too_old = macos is not None and examined.is_listed and macos < examined.minimum(examined.torch)
    explained = too_old or machine.virtual or machine.hosted or not machine.apple_silicon
    if torch.built and torch.available is False and not explained:
        yield finding("MPS unavailable", version=torch.version)


@rule("OC314")
def _fails(examined: Examined) -> Iterator[Finding]:
    torch = examined.installed_torch
    if torch.problem:
        yield finding("import fails", version=torch.version, release=torch.release, prints=torch.problem)


@rule("OC315")
def _nightly(examined: Examined) -> Iterator[Finding]:
    torch = examined.installed_torch
    if ".dev" in torch.version or "a0" in torch.version:
        text = "nightly" if ".dev" in torch.version else "built from source"
        yield finding(text, version=torch.version, line=torch.line, install=install(examined.lines[-1]))


@rule("OC316")
def _not_listed(examined: Examined) -> Iterator[Finding]:
    line, newest = examined.torch, examined.lines[-1]
    if not examined.is_listed:
        yield finding("newer torch" if line > newest else "torch not listed", line=line, install=install(newest))


@rule("OC330")
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
        release = examined.lists.extensions.release(library, torch)
        fitting = release.line if release else paired
        text = "library of another torch" if fitting else "library without this torch"
        about: dict[str, Any] = {"library": library, "version": installed[library], "torch": torch, "fitting": fitting}
        yield finding(text, **about, made_for=known.torch_line if known else "another torch")


@rule("OC331")
def _without_wheel(examined: Examined) -> Iterator[Finding]:
    for name, version in examined.environment.packages.items():
        package = PACKAGES.load().by_name.get(canonicalize_name(name))
        if package is not None and not _has_wheel(package, version):
            about: dict[str, Any] = {"described": describe(name, package), "instead": package.instead}
            yield finding("package without wheel", name=name, version=version, **about)


def _has_wheel(package: Package, version: str) -> bool:
    if package.fails:
        return True
    try:
        return bool(package.since) and Release(version) >= Release(package.since)
    except InvalidVersion:
        return False


@rule("OC332")
def _in_requirements(examined: Examined) -> Iterator[Finding]:
    for requirement in examined.requirements:
        for hit in judge(requirement.text, 1, requirement.severity):
            severity, places = hit.severity or requirement.severity, (requirement.place,)
            yield Finding(rule="OC332", severity=severity, message=hit.message, hint=hit.hint, locations=places)


@rule("OC327")
def _in_script(examined: Examined) -> Iterator[Finding]:
    yield from (replace(scanned, rule="OC327") for scanned in examined.script or ())
