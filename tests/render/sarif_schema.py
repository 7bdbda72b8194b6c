"""The part of SARIF 2.1.0 that opcheck writes, closed: a property that is not here is a mistake.

After section 3 of the standard (docs.oasis-open.org/sarif/sarif/v2.1.0): what is required, which values it knows, and that
property bags alone are open.
"""

from __future__ import annotations

from typing import Any


def _object(required: tuple[str, ...], **keys: Any) -> dict[str, Any]:
    return {"type": "object", "properties": keys, "required": list(required), "additionalProperties": False}


TEXT = {"type": "string"}
INDEX = {"type": "integer", "minimum": 0}
BAG = {"type": "object"}
#: 3.11, 3.12
MESSAGE = _object(("text",), text=TEXT, markdown=TEXT)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
#: 3.30: lines count from 1
REGION = _object((), startLine={"type": "integer", "minimum": 1}, snippet=_object((), text=TEXT))
#: RFC 3986: no spaces, no backslashes, no scheme
URI = {"type": "string", "pattern": r"^[A-Za-z0-9._~%/!$&'()*+,;=@-]+$"}
LOCATION = _object(
    (),
    physicalLocation=_object(("artifactLocation",), artifactLocation=_object(("uri",), uri=URI), region=REGION),
    logicalLocations={
        "type": "array",
        "uniqueItems": True,
        "items": _object((), fullyQualifiedName=TEXT, kind={"enum": ["function", "module"]}),
    },
)
#: 3.49
RULE = _object(
    ("id",),
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=_object((), level=LEVEL),
    properties=BAG,
)
#: 3.27
RESULT = _object(
    ("message",),
    ruleId=TEXT,
    ruleIndex=INDEX,
    level=LEVEL,
    message=MESSAGE,
    locations={"type": "array", "items": LOCATION},
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    # 3.27.24, 3.35
    baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
    suppressions={
        "type": "array",
        "items": _object(("kind",), kind={"enum": ["inSource", "external"]}, justification=TEXT),
    },
    properties=BAG,
)
#: 3.13, 3.14, 3.19
LOG = _object(
    ("version", "runs"),
    **{"$schema": TEXT},
    version={"const": "2.1.0"},
    runs={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ("tool",),
            tool=_object(
                ("driver",),
                driver=_object(
                    ("name",),
                    name=TEXT,
                    version=TEXT,
                    semanticVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                    informationUri={"type": "string", "pattern": r"^https://[^ ]+$"},
                    rules={"type": "array", "uniqueItems": True, "items": RULE},
                ),
            ),
            automationDetails=_object((), id=TEXT),
            # 3.20, 3.58
            invocations={
                "type": "array",
                "items": _object(
                    ("executionSuccessful",),
                    executionSuccessful={"type": "boolean"},
                    exitCode={"type": "integer"},
                    toolExecutionNotifications={
                        "type": "array",
                        "items": _object(("message",), message=MESSAGE, level=LEVEL),
                    },
                ),
            },
            columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            results={"type": "array", "items": RESULT},
            properties=BAG,
        ),
    },
)
