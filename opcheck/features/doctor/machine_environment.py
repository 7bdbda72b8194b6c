"""The facts that the checks examine: gathered here or on another machine, as JSON.

Nothing in them is a path, a user's name or the value of a variable that torch does not know.  What
could not be learned is None or empty, and every check treats that as unknown.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec.structs import replace

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.sanitize import for_json
from opcheck.common.tool import TOOL
from opcheck.common.versions import Version
from opcheck.model.records import Record
from opcheck.worker.process import python, run

SCHEMA = "opcheck-environment/1"


class Computer(Record, frozen=True, kw_only=True):
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

    @property
    def release(self) -> str:
        """Return the version without a local part, as an installer takes it."""
        return self.version.partition("+")[0]


class Environment(Record, frozen=True, kw_only=True):
    """Everything that ``opcheck doctor`` examines."""

    schema: str = SCHEMA
    #: what gathered it
    tool: str = ""
    machine: Computer = Computer()
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
    where, hint = f"--from {path}", "write it on the machine in question: opcheck doctor --gather > environment.json"
    with explain_errors(documents.DocumentError, "cannot read the facts", context=where, hint=hint):
        content = documents.read(path)
    with explain_errors(documents.DocumentError, "not a gathered environment", context=where, hint=hint):
        environment = documents.from_json(content, Environment)
    torch = environment.torch.version if environment.torch else ""
    try:
        # The checks parse versions: a text that is no version is refused here, once.
        for text in filter(None, (environment.machine.macos, environment.python.version, torch)):
            Version.parse(text)
    except UsageError as error:
        raise UsageError(error.message, context=where, hint=hint) from error
    if environment.schema != SCHEMA:
        problem = f"its schema is {documents.brief(environment.schema)}, not {SCHEMA!r}"
        raise UsageError(problem, context=where, hint=hint)
    return environment


def dump(environment: Environment) -> str:
    """Encode an environment as the text that ``read`` takes."""
    return for_json(msgspec.json.format(msgspec.json.encode(environment), indent=2).decode()) + "\n"


#: Seconds that the import of torch may take: the first one after an installation reads it all from
#: the disk.
_PATIENCE = 120

#: Also names that lack a part; not those of NVIDIA's service of the same name.
_OF_MPS = re.compile(r"(?!CUDA)\w*_MPS_\w*|MPS_\w*")

_MARK = "opcheck-torch:"
#: Imports as a program does.  A release may lack any of these names.
_ASK_TORCH = documents.read_text(Path(__file__).with_name("ask_torch.template")).replace("{mark}", _MARK)


def gather(variables: Mapping[str, str] | None = None) -> Environment:
    """Gather the facts of this machine and of the running Python.

    Args:
        variables: the environment; that of this process if not given.
    """
    variables = os.environ if variables is None else variables
    pairs = ((each.metadata["Name"], each.version) for each in metadata.distributions())
    return Environment(
        tool=TOOL,
        machine=_machine(variables),
        python=Python(
            version=platform.python_version(),
            architecture=platform.machine(),
            conda=Path(sys.prefix, "conda-meta").is_dir(),
        ),
        torch=_torch(),
        variables={n: text for n, text in sorted(variables.items()) if _OF_MPS.fullmatch(n)},
        # Damaged metadata lack a name or a version, whatever their types say.
        packages={name: version for name, version in sorted(pairs) if name and version},
    )


def _machine(variables: Mapping[str, str]) -> Computer:
    system = platform.system()
    hosted = "GitHub-hosted" if variables.get("RUNNER_ENVIRONMENT") == "github-hosted" else ""
    if system != "Darwin":
        return Computer(system=system, hosted=hosted)
    memory = _sysctl("hw.memsize")
    return Computer(
        system=system,
        # Not platform.mac_ver(): it returns 10.16 or 16.0 to a Python that was built for an old SDK.
        macos=_sysctl("kern.osproductversion") or platform.mac_ver()[0],
        build=_sysctl("kern.osversion"),
        model=_sysctl("hw.model"),
        chip=_sysctl("machdep.cpu.brand_string"),
        memory=int(memory) if memory.isdecimal() else None,
        # An Intel Mac has no such name.
        translated=_sysctl("sysctl.proc_translated") == "1",
        virtual={"1": True, "0": False}.get(_sysctl("kern.hv_vmm_present")),
        hosted=hosted,
    )


def _sysctl(name: str) -> str:
    """Return a value of sysctl; empty if the kernel does not know the name."""
    try:
        # In full: a program that was started by launchd may not have it in its PATH.
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _torch() -> Torch | None:
    """Return the installed torch: its metadata first, which a broken library still has."""
    try:
        distribution = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    installer = (distribution.read_text("INSTALLER") or "").strip()
    done = run(python("-c", _ASK_TORCH), _PATIENCE)
    if done.late:
        problem = f"import torch took more than {_PATIENCE} seconds"
        return Torch(version=distribution.version, installer=installer, problem=problem)
    return from_answer(distribution.version, installer, done.code, done.out, done.err)


def from_answer(version: str, installer: str, code: int, out: str, error: str) -> Torch:
    """Make the record of a torch from the output of the child process that imported it."""
    line = next((text_line for text_line in out.splitlines() if text_line.startswith(_MARK)), "")
    if code or not line:
        texts = error.strip().splitlines()
        problem = texts[-1] if texts else f"import torch ended the process with code {code}"
        return Torch(version=version, installer=installer, problem=problem)
    answer = msgspec.json.decode(line.removeprefix(_MARK), type=Torch)
    # The metadata's version is that of the installed distribution.
    return replace(answer, version=version, installer=installer)
