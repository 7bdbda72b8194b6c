"""The JSON schema of a report, ``opcheck-report/1``: what JSON and YAML hold, key by key.

This is the one place that it is written in; ``opcheck-report-1.schema.json`` beside it is what ships, and a test holds the two
together.  Every key is always there and no other is, so that a change of the report is a change of the schema: a new key with a
meaning of its own may be added to version 1, one that goes or changes its meaning is version 2.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from opcheck.common.catalogue import SEVERITIES
from opcheck.judge.judge import OUTCOMES
from opcheck.judge.pipeline import HEADLINES
from opcheck.judge.rules import BY_ID
from opcheck.model.records import CONFIDENCES, PHASES, STATUSES

FILE = "opcheck-report-1.schema.json"

Schema = dict[str, Any]


def text() -> str:
    """The schema as it ships.

    Raises:
        OSError: it is not in the package.
    """
    return (files("opcheck.render") / FILE).read_text(encoding="utf-8")


def _one_of(*values: str | None) -> Schema:
    return {"enum": list(values)}


def _object(about: str = "", /, **keys: Schema) -> Schema:
    """Exactly these keys; a trailing underscore is left out."""
    named = {key.rstrip("_"): kind for key, kind in keys.items()}
    return {
        "type": "object",
        **({"description": about} if about else {}),
        "properties": named,
        "required": list(named),
        "additionalProperties": False,
    }


def _list(items: Schema, about: str = "") -> Schema:
    return {"type": "array", **({"description": about} if about else {}), "items": items}


def _map(values: Schema, about: str = "") -> Schema:
    named = {"description": about} if about else {}
    return {"type": "object", **named, "additionalProperties": values}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _or_null(kind: Schema) -> Schema:
    return {"anyOf": [kind, {"type": "null"}]}


def _text(about: str = "") -> Schema:
    return {"type": "string", **({"description": about} if about else {})}


def _count(about: str = "") -> Schema:
    return {"type": "integer", "minimum": 0, **({"description": about} if about else {})}


_FLAG: Schema = {"type": "boolean"}
#: JSON has no word for these.
_ERROR: Schema = {"anyOf": [{"type": "number"}, _one_of("inf", "nan")]}
_TEXTS = _list(_text())
_RULE = _text("a code, as opcheck explain knows it")

_DEFS: dict[str, Schema] = {
    "location": _object(
        "a line that makes calls",
        line=_text("file:line, relative to the working directory or site-packages; or empty"),
        function=_text(),
        text=_text("the line"),
        module=_text("qualified name; a number that varies is *"),
        phase=_one_of(*PHASES),
        count=_count("calls from there"),
    ),
    "evidence": _object(
        "why a verdict is believed",
        kind=_text("registration, source, opinfo, issue, measured ..."),
        torch=_text(),
        where=_text(),
        detail=_text(),
    ),
    "finding": _object(
        "what one rule has to say",
        rule={**_RULE, "enum": list(BY_ID)},
        severity=_one_of(*SEVERITIES),
        message=_text(),
        hint=_text("the next thing to do"),
        remedy=_text("the first location's line as it could be written instead"),
        op=_text("overload, if it is about one"),
        prints=_text("what a Mac prints"),
        count=_count("calls, or what else the rule counts"),
        locations=_list(_ref("location")),
        fingerprints=_list(_text(), "one a location, or one; edits around a line keep it"),
        ignored=_text("why nobody needs to look at it; empty: it counts"),
    ),
    "group": _object(
        "all calls of one overload with one verdict",
        op=_text(),
        status=_one_of(*STATUSES),
        kind=_one_of(*dict.fromkeys(kind for _, kind in OUTCOMES)),
        because=_text(),
        count=_count(),
        named=_text("overload that the Mac's message names, where it is another"),
        prints=_text("what a Mac prints when it raises or warns"),
        confidence=_one_of(*CONFIDENCES),
        evidence=_list(_ref("evidence")),
        limitations=_list(_text(), "ids; statements has them"),
        advisories=_list(_text(), "ids; statements has them"),
        dtypes=_TEXTS,
        phases=_list(_one_of(*PHASES)),
        locations=_list(_ref("location")),
        example=_or_null(_ref("call")),
    ),
    "call": _object(
        "the smallest call of a group of which more is said than that it is native",
        inputs=_list(
            _object(
                "a tensor that it reads or writes",
                argument=_text("by the operator's schema; the tensors of a list share one"),
                dtype=_text(),
                shape=_list(_count()),
                stride=_or_null(_list({"type": "integer"}, "null: contiguous")),
                layout=_text(),
                device=_text(),
            )
        ),
        arguments=_map({}, "the others; inf and nan are words"),
    ),
    "statement": _object(
        "a limitation or an advisory",
        sort=_one_of("limitation", "advisory"),
        effect=_text(),
        summary=_text(),
        condition=_text("what code evaluates"),
        when=_text("what no code evaluates"),
        way_out=_text(),
        links=_TEXTS,
    ),
    "region": _object(
        "a maximal set of calls that run on one side",
        side=_one_of("mps", "cpu", "unknown", "raises"),
        calls=_count(),
        first=_count("number of its first call"),
        last=_count(),
        bytes_in=_count(),
        bytes_out=_count(),
    ),
    "memory": _object(
        "an estimate; in bytes, but a Mac's memory, which is in GB",
        asked=_count("the Mac that was asked about; 0: none"),
        peaks=_list(
            _object(
                phase=_one_of(*PHASES),
                total=_count(),
                held=_map(_count()),
                op=_text(),
                location=_or_null(_ref("location")),
            )
        ),
        holders=_list(
            _object(
                kind=_text(),
                bytes=_count(),
                tensors=_count(),
                op=_text(),
                location=_ref("location"),
            )
        ),
        largest=_count("the largest single piece"),
        macs=_list(
            _object(
                memory=_count(),
                working_set=_count(),
                limit=_count(),
                basis=_text(),
                state=_one_of("fits", "pressure", "raises"),
                prints=_text(),
                location=_or_null(_ref("location")),
            )
        ),
        advice=_TEXTS,
        notes=_TEXTS,
    ),
    "precision_line": _object(
        "all calls of one operator at one line; relative errors, of norms",
        op=_text(),
        local=_ERROR,
        inherited=_ERROR,
        total=_ERROR,
        location=_ref("location"),
    ),
    "precision": _object(
        "a run on this machine's CPU, call by call beside float64",
        dtype=_text(),
        limit={"type": "number"},
        calls=_count(),
        divergence=_or_null(_ref("precision_line")),
        crossing=_or_null(_ref("precision_line")),
        events=_list(
            _object(
                kind=_text(), op=_text(), elements=_count(), of=_count(), location=_ref("location")
            )
        ),
        lines=_list(_ref("precision_line")),
        modules=_list(
            _object(
                name=_text(),
                kind=_text(),
                calls=_count(),
                inherited=_ERROR,
                total=_ERROR,
                bytes_in=_count(),
                bytes_out=_count(),
                at_fault=_count(),
            )
        ),
        outputs=_map(_ERROR),
        loss=_text(),
        gradients=_map(_ERROR),
        complete=_FLAG,
        notes=_TEXTS,
    ),
}


def schema() -> Schema:
    """The whole schema, JSON Schema 2020-12."""
    totals = {f"{status}_{kind}" if kind else status: _count() for status, kind in OUTCOMES}
    report = _object(
        "What a PyTorch model does on Apple's GPU (MPS): one model, one target.",
        schema={"const": "opcheck-report/1"},
        tool=_text(),
        headline=_one_of(*HEADLINES),
        model=_text(),
        target=_object(torch=_text(), macos=_text(), cpu_fallback=_FLAG),
        totals=_object("calls by what happens", calls=_count(), operators=_count(), **totals),
        findings=_list(_ref("finding"), "the most severe first"),
        calls=_list(_ref("group"), "the worst first"),
        statements=_map(_ref("statement"), "by id: the limitations and advisories that calls name"),
        partition=_object(
            regions=_list(_ref("region")),
            transfers_to_cpu=_count("copies"),
            transfers_to_mps=_count(),
            bytes_to_cpu=_count(),
            bytes_to_mps=_count(),
        ),
        memory=_or_null(_ref("memory")),
        precision=_list(_ref("precision")),
        capture=_object(
            "how the calls were captured",
            tracer=_text(),
            mode=_text(),
            optimizer=_text(),
            autocast=_text(),
            loss=_text(),
            inputs=_TEXTS,
            inputs_note=_text(),
            complete={**_FLAG, "description": "false: the run broke off"},
            parameters=_count(),
            parameter_bytes=_count(),
            installed_torch=_text(),
            flags=_list(_text(), "the flags of opcheck audit that ask for it again"),
            differences=_TEXTS,
            modules_not_called=_TEXTS,
            environment=_map(_text()),
            packages=_map(_text()),
        ),
        op_lists=_object(
            "the data that it was judged by",
            digest=_text(),
            torch=_text(),
            wheel=_text(),
            sha256=_text(),
            commit=_text(),
            built=_text("date"),
        ),
        not_checked=_TEXTS,
        problems=_list(_object(kind=_text(), message=_text(), line=_text(), module=_text())),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:opcheck:report:1",
        "title": "opcheck-report/1",
        **report,
        "$defs": _DEFS,
    }
