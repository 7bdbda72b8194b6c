"""``opcheck op QUERY``: can I use this operator, with which torch, macOS and dtype?"""

from __future__ import annotations

import click

from opcheck.cli import VERBS, asking, flags


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
@asking.format_flag
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
    from opcheck.ask.answer import answer
    from opcheck.report.asked import op

    found = answer(query, torch, macos, dtype)
    asking.deliver(found, op.document, format_name, output_path)
    return asking.COULD_NOT_TELL if found.status == "unknown" else 0
