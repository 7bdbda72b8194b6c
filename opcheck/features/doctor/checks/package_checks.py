"""The checks of packages other than torch, of requirement files, and of a script's settings."""

from collections.abc import Iterator

from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from opcheck.common.errors import UsageError
from opcheck.common.versions import Version
from opcheck.data.extensions import LIBRARIES, paired_line
from opcheck.data.packages import Package, packages
from opcheck.features.doctor.check import Examined, finding, rule
from opcheck.model.records import Finding
from opcheck.source.rules.lacking import describe
from opcheck.source.scan_requirements import judge


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
            yield finding(
                severity=hit.severity or requirement.severity,
                message=hit.message,
                hint=hit.hint,
                locations=(requirement.place,),
            )


@rule("OC327", "warning", "a script to read (--script)")
def _in_script(examined: Examined) -> Iterator[Finding]:
    yield from (replace(scanned, rule="") for scanned in examined.script or ())
