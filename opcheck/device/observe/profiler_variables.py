"""The environment variables of an observation, and which of them a release reads."""

from collections.abc import Iterator, Mapping

from opcheck.common.errors import UsageError
from opcheck.common.versions import Version
from opcheck.data.environment import ENVIRONMENT
from opcheck.worker.environments import distribution_version

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
PROFILE = "PYTORCH_MPS_LOG_PROFILE_INFO"
#: No release reads it (op_lists/environment.yaml): set because guides name it, and reported as not
#: read.
LEVEL = "PYTORCH_MPS_LOG_LEVEL"

#: COPY_INFO + CPU_FALLBACK_INFO + COPY_STATS + CPU_FALLBACK_STATS of
#: aten/src/ATen/mps/MPSProfiler.h.  Without the bits for times each line is printed when its work
#: begins, so that it is between the marks of its call; the statistics at the end have the
#: times.
PROFILE_BITS = 2 + 4 + 32 + 64


def variables(*, cpu_fallback: bool, line: str) -> dict[str, str]:
    """Return the variables to set before torch is imported.

    Args:
        cpu_fallback: whether operators without a kernel fall back to the CPU.
        line: a release line such as ``2.13``; a variable that it does not read is not set, except
        LEVEL.
    """
    wanted = {FALLBACK: "1" if cpu_fallback else "0", LEVEL: "1", PROFILE: str(PROFILE_BITS)}
    read = {variable.name for variable in ENVIRONMENT.load().known(line)}
    return {name: value for name, value in wanted.items() if name in read or name == LEVEL}


def effects(environment: Mapping[str, str], line: str) -> Iterator[str]:
    """Return for each variable of PyTorch's about MPS that is set whether this release reads it."""
    variables_of_torch = ENVIRONMENT.load()
    for name, value in sorted(environment.items()):
        if "MPS" not in name or not name.startswith("PYTORCH_"):
            continue
        explanation = variables_of_torch.explain(name, Version.parse(line))
        if explanation.status == "read":
            yield f"{name}={value} was set: torch {line} reads it"
        else:
            yield f"anything by {name}={value}: {explanation.text}"


def installed_line() -> str:
    """Return the release line of the installed torch, without importing it.

    Raises:
        UsageError: torch is not installed.
    """
    version = distribution_version("torch")
    if not version:
        raise UsageError("torch is not installed here", context="opcheck run", hint="pip install torch")
    return ".".join(version.split(".")[:2])
