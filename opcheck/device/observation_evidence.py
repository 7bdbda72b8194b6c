"""Evidence of what a machine's GPU did: files with their digests, and a signed description of the run.

A folder of evidence has ``evidence.json`` (``HostEvidence``) and a file of rows for each step that has ended.  A run
that died leaves the steps that it had done; a folder whose signature or digests are wrong is refused as a whole.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from opcheck.common import caches, documents
from opcheck.common.errors import InputError
from opcheck.common.files import write_text
from opcheck.common.tool import TOOL
from opcheck.model.records import Record

SCHEMA = "opcheck-host-evidence/1"
FILE = "evidence.json"
#: The variable with the key of the signature, which CI keeps as a secret; without it the user's own key signs.
KEY = "OPCHECK_EVIDENCE_KEY"
#: bytes of a step's rows, and rows of a step
_MOST_BYTES, _MOST_ROWS = 64 << 20, 200_000

StepKind = Literal["doctor", "models", "programs", "probe", "kernels"]
STEP_KINDS: tuple[StepKind, ...] = ("doctor", "models", "programs", "probe", "kernels")


class Host(Record, frozen=True, kw_only=True):
    """The machine of a run."""

    torch: str
    macos: str
    #: as sw_vers names it
    build: str = ""
    chip: str = ""
    #: image and version of a hosted runner, such as ``macos15 20261101.12``; empty: no hosted runner
    image: str = ""
    #: whether the GPU is a virtual machine's, or an emulated one
    gpu: Literal["real", "virtual", "emulated"]


class HostRow(Record, frozen=True, kw_only=True):
    """What was predicted and what was observed of calls that are alike."""

    #: the model, the program, the OpInfo or the kernel's operation
    subject: str
    op: str
    dtypes: tuple[str, ...] = ()
    predicted: str
    observed: str
    count: int = 1
    #: what the machine printed, or by how much a result is off
    text: str = ""
    line: str = ""

    @property
    def is_contradiction(self) -> bool:
        """Return whether both claim something, and not the same."""
        return self.predicted != self.observed and "unknown" not in (self.predicted, self.observed)


class HostStep(Record, frozen=True, kw_only=True):
    """A step of a run: a model, a program, a part of the database, a family of kernels."""

    kind: StepKind
    name: str
    state: Literal["done", "failed"]
    #: SHA-256 of its file of rows; empty: it failed
    sha256: str = ""
    attempts: int = 1
    seconds: float = 0.0
    why: str = ""

    @property
    def file(self) -> str:
        """Return the name of its file of rows."""
        return f"{self.kind}-{hashlib.sha256(self.name.encode()).hexdigest()[:12]}.json"


class HostEvidence(Record, frozen=True, kw_only=True):
    """The content of ``evidence.json``."""

    schema: str = SCHEMA
    tool: str = TOOL
    #: a random name of the run: two folders of one run count once
    run: str
    #: the day when it began
    made: str
    #: digest of the op lists that predicted
    op_lists: str
    host: Host
    steps: tuple[HostStep, ...] = ()
    #: False: the run ended, or its time was up, before all steps were done
    complete: bool = False
    #: ``hmac-sha256:`` and the digits
    signature: str = ""

    def sign(self) -> HostEvidence:
        """Return it with the signature of its content."""
        return msgspec.structs.replace(self, signature=self._compute_signature())

    def is_signed(self) -> bool:
        """Return whether the signature is that of this content by the same key."""
        return secrets.compare_digest(self.signature, self._compute_signature())

    def _compute_signature(self) -> str:
        plain = msgspec.structs.replace(self, signature="")
        digits = caches.sign(msgspec.json.encode(plain), os.environ.get(KEY, "").encode())
        return f"hmac-sha256:{digits}"


_EVIDENCE = msgspec.json.Decoder(HostEvidence)
_ROWS = msgspec.json.Decoder(tuple[HostRow, ...])


def write_rows(folder: Path, step: HostStep, rows: Sequence[HostRow]) -> HostStep:
    """Write the rows of a step, and return the step with their digest."""
    body = msgspec.json.format(msgspec.json.encode(rows), indent=1)
    write_text(folder / step.file, body.decode())
    return msgspec.structs.replace(step, sha256=hashlib.sha256(body).hexdigest())


def write_evidence(folder: Path, evidence: HostEvidence) -> None:
    """Write the description of a run, signed."""
    body = msgspec.json.format(msgspec.json.encode(evidence.sign()), indent=1)
    write_text(folder / FILE, body.decode())


def read_evidence(folder: Path) -> HostEvidence:
    """Read the description of a run, and check its signature.

    Raises:
        InputError: there is none, it is damaged, or another key signed it.
    """
    try:
        evidence = _EVIDENCE.decode(documents.read(folder / FILE))
    except (OSError, documents.DocumentError, msgspec.DecodeError) as error:
        raise _refuse(folder, f"no evidence of a run: {error}") from error
    if evidence.schema != SCHEMA:
        raise _refuse(folder, f"{evidence.schema!r} is not {SCHEMA!r}")
    if not evidence.is_signed():
        raise _refuse(folder, "its signature is wrong, or of another key")
    return evidence


def read_rows(folder: Path, evidence: HostEvidence) -> dict[str, tuple[HostRow, ...]]:
    """Return the rows of each step that is done, by its file.

    Raises:
        InputError: a file is missing or damaged, or has another digest.
    """
    rows = {}
    for step in evidence.steps:
        if step.state != "done":
            continue
        try:
            body = documents.read(folder / step.file, _MOST_BYTES, follow=False)
        except (OSError, documents.DocumentError) as error:
            raise _refuse(folder, f"{step.file} cannot be read: {error}") from error
        if hashlib.sha256(body).hexdigest() != step.sha256:
            raise _refuse(folder, f"{step.file} has another digest")
        try:
            rows[step.file] = _ROWS.decode(body)
        except msgspec.DecodeError as error:
            raise _refuse(folder, f"{step.file}: {error}") from error
        if len(rows[step.file]) > _MOST_ROWS:
            raise _refuse(folder, f"{step.file} has more than {_MOST_ROWS:,} rows")
    return rows


def _refuse(folder: Path, why: str) -> InputError:
    return InputError(
        f"this evidence is refused: {why}",
        context=str(folder / FILE),
        hint=f"make it again with opcheck observe-all, and set {KEY} to the key that signed it",
    )
