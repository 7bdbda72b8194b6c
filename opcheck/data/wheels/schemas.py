"""The overloads that a release declares, read from native_functions.yaml by its own torchgen."""

import sys
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.errors import OpListError
from opcheck.data.wheels import torchgen_child
from opcheck.worker import process

#: seconds that the wheel's torchgen may take
_SECONDS = 600.0


class Schema(msgspec.Struct, frozen=True):
    """The schema facts of an overload."""

    #: torchgen generated it: an out= or functional form that is not written by hand.
    generated: bool
    #: the MPS keys that have a kernel for it, structured delegation included.
    keys: tuple[str, ...]
    #: the .out overload that does the work of this structured form.
    out: str | None = None
    #: the overload that this generated wrapper calls.
    base: str | None = None


def read_schemas(tree: Path) -> dict[str, Schema]:
    """Parse the yaml below ``tree`` (an unpacked ``torchgen``) in a child process.

    The torchgen is code from a wheel that the user named, so it runs isolated: without environment
    variables, without a user site, and without a torch to import.

    Raises:
        OpListError: the child failed, or its answer is not of the expected form.
    """
    command = [sys.executable, "-I", torchgen_child.__file__, str(tree)]
    done = process.run(command, _SECONDS, environment={})
    if done.late or done.code:
        # torchgen adds "in FILE:LINE:" and the schema below the exception's own line.
        lines = done.err.strip().splitlines()[-3:]
        raise OpListError(
            "the wheel's torchgen does not parse its native_functions.yaml",
            context=" ".join(line.strip() for line in lines) or "no output",
            hint="install PyYAML and typing_extensions: pip install 'opcheck[wheels]'",
        )
    try:
        schemas = documents.from_json(done.out, dict[str, Schema])
    except documents.DocumentError as error:
        raise OpListError(
            "torchgen printed something else than the overloads",
            context=str(error),
            hint="the wheel's torchgen has changed; torchgen_child.py must learn it",
        ) from error
    orphans = sorted(n for n, s in schemas.items() if s.generated and s.base not in schemas)
    if orphans:
        raise OpListError(
            f"{len(orphans)} generated overloads without the operator that they wrap",
            context=", ".join(orphans[:5]),
            hint="torchgen/native_function_generation.py has changed; torchgen_child.py must learn it",
        )
    return schemas
