"""``opcheck doctor``: what is wrong with a machine, its Python, its torch and its variables."""

from pathlib import Path
from typing import Annotated

from opcheck.cli.options import COULD_NOT_TELL, SEVERITIES, OutputOptions, flag, list_failing, verb
from opcheck.common.errors import UsageError
from opcheck.model.options import Option, failing_on


@verb("doctor")
def command(
    *,
    gather: Annotated[bool, flag("Only write the facts as JSON, for --from on another machine.")] = False,
    from_file: Annotated[
        str, flag("Check the facts that --gather wrote on another machine.", "from", metavar="FILE")
    ] = "",
    script: Annotated[str, flag("Also check the variables that this script sets.", metavar="FILE")] = "",
    requirements: Annotated[
        tuple[str, ...], flag("Also read a requirements.txt or pyproject.toml. Repeatable.", metavar="FILE")
    ] = (),
    fail_on: Annotated[str, failing_on(SEVERITIES)] = "error",
    strict: Annotated[bool, Option("Exit with 3 if a check could not run.")] = False,
    output: OutputOptions,
) -> int:
    """Write the diagnosis; 1 where something as severe as --fail-on is wrong."""
    from opcheck.data.registrations import load
    from opcheck.features.doctor import machine_environment as facts
    from opcheck.features.doctor import page
    from opcheck.features.doctor.examine import examine

    if gather and (from_file or script or requirements or output.format):
        problem = "--gather takes no other flag: it only writes the facts"
        hint = "opcheck doctor --gather > environment.json, then opcheck doctor --from environment.json"
        raise UsageError(problem, context="opcheck doctor --gather", hint=hint)
    environment = facts.read(Path(from_file)) if from_file else facts.gather()
    if gather:
        output.put(facts.dump(environment))
        return 0
    program, files = Path(script) if script else None, tuple(map(Path, requirements))
    diagnosis = examine(environment, load(), script=program, requirements=files)
    output.deliver(diagnosis, page.document)
    if any(diagnosis.totals[severity] for severity in list_failing(fail_on)):
        return 1
    return COULD_NOT_TELL if strict and diagnosis.unknown else 0
