"""``opcheck op QUERY``: can I use this operator, with which torch, macOS and dtype?"""

from __future__ import annotations

import click

from opcheck.cli import VERBS, flags, output_formats


@click.command(
    "op",
    help=VERBS["op"],
    epilog="QUERY is aten::nonzero, aten::add.Tensor, torch.fft.rfft, nn.functional.grid_sample, "
    "F.gelu, Tensor.masked_fill_ or a bare isin. Exits with 3 where nothing is known.",
)
@click.argument("query")
@flags.torch("Of this torch release only.")
@flags.macos("On this macOS only.")
@flags.dtype
@output_formats.format_flag
@flags.output()
def command(  # noqa: D103
    *,
    query: str,
    torch: str | None,
    macos: str | None,
    dtype: str | None,
    format_name: str | None,
    output_path: str,
) -> int:
    from opcheck.lookup.answer import answer
    from opcheck.render.answers import op

    found = answer(query, torch, macos, dtype)
    output_formats.deliver(found, op.document, format_name, output_path)
    return output_formats.COULD_NOT_TELL if found.status == "unknown" else 0
