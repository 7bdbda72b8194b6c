"""The saved report: the encoding of ``Report`` as plain data, its JSON schema, and how a file of it is read back.

JSON and YAML have the same data, schema ``opcheck-report/1``. A new key with a meaning of its own
may be added to version 1, and then has a default, so that older reports are still read; a key that
goes or changes its meaning is version 2.
"""

import re
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from opcheck.common import documents
from opcheck.common.documents import DocumentError, brief
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.sanitize import flat
from opcheck.model.records import KernelNumbers, Report

#: The one schema that is written and read: the same keys may mean something else in a later version.
(SCHEMA,) = get_args(get_type_hints(Report)["schema"])

#: What a hint states that a damaged report needs.
WRITE_AGAIN = "write it again: opcheck audit MODEL -o report.json"

_NAME_ONE = "name a .json or .yaml report"

_SCHEMA = re.compile(r"(?P<name>[\w-]+)/(?P<version>\d{1,9})")


def as_content(report: Report) -> dict[str, Any]:
    """Convert a report to dicts, lists and scalars: every key is present, and the single calls are left out."""
    content: dict[str, Any] = to_plain(replace(report, graph=(), workloads=()))
    del content["graph"], content["workloads"]
    # Who reads the file looks for the operator first; a verdict, of which a group is one, has none.
    content["calls"] = [{"op": group["op"], "count": group["count"], **group} for group in content["calls"]]
    return content


def to_plain(record: msgspec.Struct) -> Any:
    """Convert a record to dicts, lists and scalars, as in JSON and YAML."""
    return _with_lists(msgspec.to_builtins(record))


def _with_lists(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _with_lists(value) for name, value in content.items()}
    return [_with_lists(value) for value in content] if isinstance(content, tuple) else content


def read(path: str) -> Report:
    """Read the report in a file, JSON or YAML, whatever its suffix.

    Raises:
        UsageError: the file cannot be read, is no report, is damaged, or has a newer schema.
    """
    with explain_errors(DocumentError, "cannot read the report", context=path, hint=_NAME_ONE):
        text = documents.read_text(path)
    with explain_errors(DocumentError, "neither JSON nor YAML", context=path, hint=_NAME_ONE):
        content = documents.from_json_or_yaml(text)
    _check_schema(content.get("schema") if isinstance(content, dict) else None, path)
    with explain_errors(DocumentError, "a damaged report", context=path, hint=WRITE_AGAIN):
        report = documents.convert(content, Report)
        if any(len(each.fingerprints) != max(1, len(each.locations)) for each in report.findings):
            raise DocumentError("a finding has not one fingerprint a location")
    return report


def _check_schema(schema: object, path: str) -> None:
    name, _, newest = SCHEMA.partition("/")
    match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if match is None or match["name"] != name:
        reason = f"its schema is {brief(schema)}" if schema else "it names no schema"
        raise UsageError(f"not a report of an audit: {reason}", context=path, hint=WRITE_AGAIN)
    if int(match["version"]) > int(newest):
        message = f"the report is of a newer schema than this opcheck reads: {schema}"
        raise UsageError(message, context=f"{path}; this one reads {SCHEMA}", hint=f"upgrade opcheck, or {WRITE_AGAIN}")


#: Keys that a report has only where they say something (``ReportTarget`` omits defaults).
_OMITTED = frozenset({"beyond", "wrong"})


def json_schema(kind: type[msgspec.Struct] = Report) -> dict[str, Any]:
    """Generate the JSON schema (2020-12) of what opcheck saves of a record from the record's types.

    Args:
        kind: a record whose field ``schema`` names its format, as ``opcheck-scan/2``.
    """
    kinds: dict[str, Any] = msgspec.json.schema(kind, schema_hook=_any_value)["$defs"]
    document = kinds.pop(kind.__name__)
    report = document if kind is Report else kinds.get(Report.__name__)
    if report is not None:
        del report["properties"]["graph"], report["properties"]["workloads"]
        del kinds["GraphCall"], kinds["Workload"], kinds["CallWork"]
    for each in (document, *kinds.values()):
        # The first sentence of a docstring: the rest is for users of Python, indented up to Python 3.12.
        if "description" in each:
            each["description"] = each["description"].partition("\n")[0]
        if "properties" not in each:
            continue
        # Every key is always there except those of records that omit defaults, and no other is.
        whole = each is report or each.get("title") == KernelNumbers.__name__
        omitted = frozenset() if whole else _OMITTED
        each["required"] = [name for name in each["properties"] if name not in omitted]
        each["additionalProperties"] = False
        for entry in each["properties"].values():
            entry.pop("default", None)
    fields = msgspec.structs.fields(kind)
    name = next(str(field.default) for field in fields if field.name == "schema")
    document["properties"]["schema"] = {"enum": [name]}
    urn = f"urn:{name.replace('-', ':', 1).replace('/', ':')}"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": urn}
    return {**head, **document, "title": name, "$defs": kinds}


def _any_value(_kind: type) -> dict[str, Any]:
    """Return the schema of a plain ``object``."""
    return {"description": "any value"}


def sanitize_report(report: Report) -> Report:
    """Return the report without its graph, each text on one line with hidden characters as numbers."""
    return _sanitize(replace(report, graph=()))  # type: ignore[no-any-return]


def _sanitize(value: Any) -> Any:
    if isinstance(value, str):
        return flat(value)
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return type(value)(**{name: _sanitize(getattr(value, name)) for name in fields})
    if isinstance(value, (tuple, list)):
        return type(value)(_sanitize(entry) for entry in value)
    if isinstance(value, dict):
        return {_sanitize(name): _sanitize(entry) for name, entry in value.items()}
    return value
