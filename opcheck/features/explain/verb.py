"""``opcheck explain [ID]``: the page of a finding, a remedy or a statement; the schema of a report."""

import difflib
import json
from importlib import import_module
from typing import Annotated

import click
import msgspec

from opcheck.cli import streams
from opcheck.cli.options import VERBOSE, verb
from opcheck.common.errors import UsageError
from opcheck.features import documents


@verb("explain")
@click.argument("rule_id", metavar="[ID|schema]", required=False)
@click.argument("document", metavar="[NAME]", default="", required=False)
def command(*, rule_id: str | None, document: str, verbose: Annotated[bool, VERBOSE] = False) -> int:
    """Print the page of one rule, remedy or statement, or a line for each, or the schema of a saved document."""
    from opcheck.common import catalogue
    from opcheck.data.registrations import load
    from opcheck.features.explain import page
    from opcheck.judge import remedies

    if document and (rule_id or "").lower() != page.SCHEMA:
        hint = "opcheck explain -v lists all names; opcheck explain schema NAME prints a schema"
        raise UsageError(f"explain takes one name; {document!r} is too much", context="opcheck explain", hint=hint)
    if rule_id is None:
        streams.emit("\n".join(page.list_names() if verbose else page.overview()))
        return 0
    if rule_id.lower() == page.SCHEMA:
        from opcheck.model.saved import json_schema

        streams.emit(json.dumps(json_schema(_record(document)), indent=2) + "\n")
        return 0
    # 102 and oc102 mean OC102.
    rule = catalogue.by_id().get(f"OC{rule_id.upper().removeprefix('OC')}")
    remedy = remedies.BY_ID.get(rule_id.lower().replace("-", "_"))
    statements = load().statements.by_id
    if remedy is not None:
        text = f"# {remedy.id}: {remedy.title}\n\n{remedy.page.strip()}\n"
    elif rule_id.lower() in statements:
        text = page.page(statements[rule_id.lower()])
    elif rule is not None:
        text = f"# {rule.id} {rule.slug}: {rule.title}\n\n{rule.page}\n"
    else:
        near = difflib.get_close_matches(rule_id, [*remedies.BY_ID, *statements, page.SCHEMA], 3)
        hint = f"did you mean {', '.join(near)}? " * bool(near) + "opcheck explain -v lists all of them"
        raise UsageError(f"unknown finding: {rule_id!r}", context="opcheck explain", hint=hint)
    streams.emit(text if verbose else page.shorten(text))
    return 0


def _record(name: str) -> type[msgspec.Struct]:
    """Return the record that a saved document encodes; that of a report for an empty name.

    Raises:
        UsageError: no document has that name.
    """
    known = documents()
    if name and name not in known:
        hint = f"known: {', '.join(known)}"
        raise UsageError(f"no saved document is called {name!r}", context="opcheck explain schema", hint=hint)
    module, _, kind = known[name or "report"].partition(":")
    record: type[msgspec.Struct] = getattr(import_module(module), kind)
    return record
