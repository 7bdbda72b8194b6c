"""The checks of what is installed or asked for beside torch, and of what a script sets."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as Release

from opcheck.doctor.check import Check, Examined, found, page
from opcheck.errors import UsageError
from opcheck.model import Finding
from opcheck.oplists.extensions import LIBRARIES, paired_line
from opcheck.scan.packages import Package, packages
from opcheck.scan.requirements import judge
from opcheck.scan.rules.oc214_package_without_macos import describe
from opcheck.versions import Version


def _mismatch(examined: Examined) -> Iterator[Finding]:
    installed = {str(canonicalize_name(n)): v for n, v in examined.environment.packages.items()}
    torch = str(examined.torch)
    for library in LIBRARIES:
        try:
            line = str(Version.parse(installed.get(library, "")))
        except UsageError:
            continue
        releases = examined.lists.extensions.releases.get(library, ())
        known = next((one for one in releases if one.line == line), None)
        paired = paired_line(library, torch)
        if line == paired or (known is not None and known.admits(torch)):
            continue
        made_for = known.torch_line if known else "another torch"
        fitting = examined.lists.extensions.release(library, torch)
        other = fitting.line if fitting else paired
        mend = f'pip install "{library}=={other}.*"' if other else f"pip uninstall {library}"
        yield found(
            message=f"{library} {installed[library]} was made for torch {made_for}, and torch {torch} is "
            "installed" + ("" if other else f"; no {library} was released with it"),
            hint=mend,
        )


def _installed(examined: Examined) -> Iterator[Finding]:
    for name, version in examined.environment.packages.items():
        package = packages().by_name.get(canonicalize_name(name))
        if package is not None and not _has_wheel(package, version):
            yield found(
                message=f"{describe(name, package)}, and {version} is installed: built from source, or without "
                "its kernels",
                hint=f"pip uninstall {name}; instead: {package.instead}",
            )


def _has_wheel(package: Package, version: str) -> bool:
    try:
        return bool(package.since) and Release(version) >= Release(package.since)
    except InvalidVersion:
        return False


def _required(examined: Examined) -> Iterator[Finding]:
    for one in examined.requirements:
        for hit in judge(one.text, 1, one.severity):
            yield found(
                severity=hit.severity, message=hit.message, hint=hit.hint, locations=(one.place,)
            )


def _in_script(examined: Examined) -> Iterator[Finding]:
    for finding in examined.script or ():
        yield msgspec.structs.replace(finding, rule="")


CHECKS = (
    Check(
        id="OC327",
        slug="set_in_script",
        title="A script that sets a variable in vain",
        severity="warning",
        needs=("a script to read (--script)",),
        check=_in_script,
        page=page(
            what="The script sets a variable for MPS too late, to no number, or one that this release does not read.",
            why="PYTORCH_ENABLE_MPS_FALLBACK is read once, while torch is imported; every import that imports torch comes after "
            "it. Only the script tells: from outside, the process looks as if the variable was never set.",
            before='import torch\nos.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"',
            after='os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"\nimport torch',
            evidence="the script, read and not run: opcheck scan's OC216.",
        ),
    ),
    Check(
        id="OC330",
        slug="extension_mismatch",
        title="torchvision or torchaudio for another torch",
        severity="error",
        needs=("an installed torch",),
        check=_mismatch,
        page=page(
            what="The installed torchvision or torchaudio was released with another torch than the installed one.",
            why="Their libraries are built against one release: with another the import fails, or their operators are missing "
            "(`operator torchvision::nms does not exist`).",
            before="$ pip install --upgrade torch    # torchvision stays as it was",
            after='$ pip install "torch==2.13.*" "torchvision==0.28.*"',
            evidence="op_lists/extensions.yaml: what each wheel requires; the tables in the READMEs of pytorch/vision and "
            "pytorch/audio.",
        ),
    ),
    Check(
        id="OC331",
        slug="cuda_package_installed",
        title="A package of the CUDA world is installed on this Mac",
        severity="note",
        needs=("a Mac",),
        check=_installed,
        page=page(
            what="A package is installed that has no wheel for macOS, in any version or in this one.",
            why="It was built from source, or installed without what it is for; code that finds it takes its way for CUDA.",
            before="$ pip install --no-build-isolation deepspeed",
            after="$ pip uninstall deepspeed",
            evidence="op_lists/packages.yaml: what the package index had for macOS arm64, with the date.",
        ),
    ),
    Check(
        id="OC332",
        slug="package_without_macos",
        title="A required package that has no wheel for macOS",
        severity="error",
        needs=("requirements to read (--requirements)",),
        check=_required,
        page=page(
            what="requirements.txt or pyproject.toml asks for a package that pip does not find for a Mac.",
            why="pip install fails, or builds from sources that need CUDA.",
            before="flash-attn>=2.5",
            after='flash-attn>=2.5; sys_platform == "linux"',
            evidence="op_lists/packages.yaml: what the package index had for macOS arm64, with the date.",
        ),
    ),
)
