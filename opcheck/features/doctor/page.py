"""The answer to ``opcheck doctor`` as a page."""

from collections.abc import Iterator

from opcheck.common.text import filesize, plural
from opcheck.features.doctor.examine import Diagnosis
from opcheck.features.doctor.machine_environment import Environment
from opcheck.render.document import Block, Bullets, Heading, Lines, Table, section
from opcheck.render.report import entry, place

_SYSTEMS = {"Darwin": "macOS"}


def document(diagnosis: Diagnosis) -> Iterator[Block]:
    """Make the page: the counts, the findings, the facts, what is unknown."""
    environment = diagnosis.environment
    machine, python = environment.machine, environment.python
    system = _SYSTEMS.get(machine.system, machine.system) or "an unknown system"
    torch = f"torch {environment.torch.version}" if environment.torch else "no torch"
    where = f"{system} {machine.macos}".strip()
    version = f"Python {python.version or '?'} ({python.architecture or '?'})"
    yield Heading(f"{torch}, {version}, {where}", 1)
    counts = ", ".join(plural(count, name) for name, count in diagnosis.totals.items() if count)
    left_out = sum(map(len, diagnosis.unknown.values()))
    more = f"; {left_out} could not run (below)" if left_out else ""
    lines = [f"{counts or 'Nothing found'}, by {plural(len(diagnosis.checked), 'check')}{more}."]
    if not environment.is_mac:
        lines.append(
            f"This is {machine.system or 'an unknown system'}, not a Mac: only variables, packages and files were "
            "checked. To check a Mac from here: opcheck doctor --gather there, --from FILE here."
        )
    yield Lines(tuple(lines))
    entries = (entry(finding, map(place, finding.locations)) for finding in diagnosis.findings)
    yield from section("Findings", *entries)
    yield from section("What was checked", Table(("fact", "value"), tuple(_facts(environment))))
    unknown = (f"without {what}: {', '.join(ids)}" for what, ids in diagnosis.unknown.items())
    yield from section("Unknown", Bullets(tuple(unknown)))
    yield Heading("Not checked")
    yield Bullets((*diagnosis.not_checked, "opcheck explain CODE explains each code"))


def _facts(environment: Environment) -> Iterator[tuple[str, str]]:
    machine, torch = environment.machine, environment.torch
    words = {True: "yes", False: "no", None: "not known"}
    if environment.is_mac:
        build = f" ({machine.build})" if machine.build else ""
        yield "macOS", f"{machine.macos or 'not known'}{build}"
        yield "Mac", ", ".join(filter(None, (machine.chip, machine.model))) or "not known"
        yield "memory", filesize(machine.memory) if machine.memory is not None else "not known"
        yield "under Rosetta", words[machine.translated]
        yield "virtual machine", words[machine.virtual]
    if machine.hosted:
        yield "runner", machine.hosted
    if torch is not None:
        yield "torch", f"{torch.version}, installed by {torch.installer or 'an unknown installer'}"
        yield "commit", torch.commit or "not known"
        yield "torch.backends.mps.is_built()", words[torch.built]
        yield "torch.backends.mps.is_available()", words[torch.available]
    if torch is not None and torch.recommended:
        yield "torch.mps.recommended_max_memory()", filesize(torch.recommended)
    for name, value in environment.variables.items():
        yield name, " ".join(value.split()) or "(empty)"
    yield "packages", str(len(environment.packages))
