"""The facts that the checks examine: gathered here (gather.py) or on another machine, as JSON.

Nothing in them is a path, a user's name or the value of a variable that torch does not know.  What
could not be learned is None or empty, and every check treats that as unknown.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.documents import DocumentError, brief
from opcheck.common.errors import UsageError
from opcheck.common.sanitize import for_json
from opcheck.common.versions import Version
from opcheck.model.records import Record

SCHEMA = "opcheck-environment/1"


class Machine(Record, frozen=True, kw_only=True):
    """The computer and its system."""

    #: as platform.system() returns it: Darwin, Linux, Windows
    system: str = ""
    macos: str = ""
    #: Apple's build of that macOS, as 24G84
    build: str = ""
    #: hw.model, as Mac14,9
    model: str = ""
    #: machdep.cpu.brand_string, as Apple M2 Pro
    chip: str = ""
    #: bytes
    memory: int | None = None
    #: sysctl.proc_translated: this process runs under Rosetta
    translated: bool | None = None
    #: kern.hv_vmm_present: the system runs in a virtual machine
    virtual: bool | None = None
    #: whose runner of continuous integration it is, as ``GitHub-hosted``; empty: none that is
    #: known.
    hosted: str = ""

    @property
    def apple_silicon(self) -> bool | None:
        """Return whether the processor is Apple's; None: unknown."""
        if self.translated:
            return True
        return self.chip.startswith("Apple") if self.chip else None


class Python(Record, frozen=True, kw_only=True):
    """The interpreter."""

    version: str = ""
    #: as platform.machine() returns it: arm64, x86_64
    architecture: str = ""
    conda: bool = False


class Torch(Record, frozen=True, kw_only=True):
    """The installed torch; facts that need an import are None if torch was not imported or failed to import."""

    #: the full version, as 2.13.0 or 2.12.0.dev20260301
    version: str
    #: the installer in its metadata: pip, uv, conda
    installer: str = ""
    #: torch.version.git_version
    commit: str = ""
    #: torch.backends.mps.is_built() and is_available()
    built: bool | None = None
    available: bool | None = None
    #: bytes; torch.mps.recommended_max_memory(), where MPS is available and the release has it.
    recommended: int | None = None
    #: why it could not be imported
    problem: str = ""

    @property
    def line(self) -> Version:
        """Return the release line, ``2.13``."""
        return Version.parse(self.version)


class Environment(Record, frozen=True, kw_only=True):
    """Everything that ``opcheck doctor`` examines."""

    schema: str = SCHEMA
    #: what gathered it
    tool: str = ""
    machine: Machine = Machine()
    python: Python = Python()
    #: None: not installed
    torch: Torch | None = None
    #: the variables with MPS in their names
    variables: dict[str, str] = {}
    #: the installed distributions and their versions
    packages: dict[str, str] = {}

    @property
    def is_mac(self) -> bool:
        """Return whether the machine is a Mac."""
        return self.machine.system == "Darwin"

    @property
    def macos(self) -> Version | None:
        """Return the macOS version; None: no Mac, or unknown."""
        return Version.parse(self.machine.macos) if self.machine.macos else None


def read(path: Path) -> Environment:
    """Read what ``opcheck doctor --gather`` wrote.

    Raises:
        UsageError: the file cannot be read, or has other content.
    """
    hint = "write it on the machine in question: opcheck doctor --gather > environment.json"
    try:
        environment = _decode(documents.read(path))
        # The checks parse versions: a text that is no version is refused here, once.
        texts = [environment.machine.macos, environment.python.version]
        texts += [environment.torch.version] if environment.torch else []
        for text in filter(None, texts):
            Version.parse(text)
    except DocumentError as error:
        reason = str(error)
    except UsageError as error:
        reason = error.message
    else:
        if environment.schema == SCHEMA:
            return environment
        reason = f"its schema is {brief(environment.schema)}, not {SCHEMA!r}"
    raise UsageError(reason, context=f"--from {path}", hint=hint)


def _decode(content: bytes) -> Environment:
    try:
        return documents.from_json(content, Environment)
    except DocumentError as error:
        message = f"not a gathered environment: {error}"
        raise UsageError(message) from error


def dump(environment: Environment) -> str:
    """Encode an environment as the text that ``read`` takes."""
    return for_json(msgspec.json.format(msgspec.json.encode(environment), indent=2).decode()) + "\n"
