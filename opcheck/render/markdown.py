"""A document as Markdown, for a pull request or a documentation page."""

from collections.abc import Iterator

from opcheck.common.sanitize import markdown, markdown_code
from opcheck.render import document as blocks


def as_markdown(document: blocks.Document) -> str:
    """Write a document as Markdown with pipe tables, which are not padded: GitHub cuts what is long."""
    return "\n\n".join("\n".join(_block(block)) for block in document) + "\n"


def _block(block: blocks.Block) -> Iterator[str]:
    if isinstance(block, blocks.Title):
        yield f"# {markdown(block.subject)}: {markdown(block.answer.text)}"
        yield f"\nOn {markdown(block.target)}: {markdown(block.numbers)}."
    elif isinstance(block, blocks.Heading):
        yield f"{'#' * block.level} {markdown(block.text)}"
    elif isinstance(block, blocks.Lines):
        yield "  \n".join(map(_words, block.lines))
    elif isinstance(block, blocks.Bullets):
        yield from (f"- {_words(item)}" for item in block.items)
    elif isinstance(block, blocks.Facts):
        yield from (f"- **{markdown(name)}**: {_words(words)}" for name, words in block.items)
    elif isinstance(block, blocks.FindingEntry):
        yield from _entry(block)
    else:
        yield from _table(block)


def _entry(block: blocks.FindingEntry) -> Iterator[str]:
    yield f"**{block.severity} {markdown(block.rule)}** {markdown(block.message)}"
    if block.places or block.details:
        yield ""
    for place in block.places:
        source = f": {markdown_code(place.source)}" if place.source else ""
        yield f"- {markdown(place.text)}{source}"
    for name, text in block.details:
        if isinstance(text, blocks.TextSpan) and text.brief:
            yield f"- {name}: {markdown_code(text.brief)}"
            # A blank line ends the HTML, so that what follows is Markdown again.
            yield "  <details><summary>the whole text</summary>"
            yield f"\n  {markdown_code(text.text)}\n"
            yield "  </details>"
        else:
            yield f"- {name}: {_words(text)}"


def _table(block: blocks.Table) -> Iterator[str]:
    from tabulate import DataRow, TableFormat, tabulate

    writers = [markdown_code if n in block.code else markdown for n in range(len(block.headers))]
    texts = [map(blocks.plain, row) for row in block.rows]
    rows = [[write(text, in_table=True) for write, text in zip(writers, row, strict=True)] for row in texts]
    headers = [markdown(header, in_table=True) for header in block.headers]
    rule = " | ".join("---:" if n in block.right else "---" for n in range(len(headers)))
    row_format = DataRow("| ", " | ", " |")
    table = TableFormat(
        lineabove=None,
        linebelowheader=lambda _widths, _alignments: f"| {rule} |",
        linebetweenrows=None,
        linebelow=None,
        headerrow=row_format,
        datarow=row_format,
        padding=0,
        with_header_hide=None,
    )
    # Cells are texts already, and stay unpadded: no column is aligned.
    yield tabulate(rows, headers, tablefmt=table, stralign=None, numalign=None, disable_numparse=True)


def _words(words: blocks.Words) -> str:
    return " ".join(map(_part, blocks.parts(words)))


def _part(part: str | blocks.TextSpan) -> str:
    if isinstance(part, str):
        return markdown(part)
    return markdown_code(part.text) if part.style in {"name", "code"} else markdown(part.text)
