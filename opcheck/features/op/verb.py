"""``opcheck op QUERY``: can I use this operator, and on which targets?"""

from typing import Annotated

import click

from opcheck.cli.options import COULD_NOT_TELL, DTYPE, OutputOptions, SectionOptions, only, verb
from opcheck.data.targets import TargetOptions


@verb("op")
@click.argument("query")
def command(
    *,
    query: str,
    target: Annotated[TargetOptions, only(torch="Only this torch release.", macos="Only this macOS version.")],
    dtype: Annotated[str | None, DTYPE] = None,
    output: OutputOptions,
    sections: SectionOptions,
) -> int:
    """Write the answer; 3 where nothing is known."""
    from opcheck.features.op import page
    from opcheck.lookup.answer import answer

    answered = answer(query, target.torch, target.macos, dtype)
    output.deliver(answered, page.document, sections)
    return COULD_NOT_TELL if answered.status == "unknown" else 0
