"""The results of a run of the gate: a cell for each model on each target."""

from opcheck.common.vocabulary import Headline
from opcheck.model.records import Record, Report

SCHEMA = "opcheck-gate/1"


class Failed(Record, frozen=True, kw_only=True):
    """Why there is no report: the three lines of an error."""

    message: str
    context: str = ""
    hint: str = ""


class Known(Record, frozen=True, kw_only=True):
    """An entry of a baseline: a finding at one place of one model."""

    fingerprint: str
    rule: str
    op: str = ""
    #: file, function and module, without the number of the line; the line itself
    where: str = ""
    line: str = ""
    #: the worst on these targets; empty in a file of an earlier opcheck
    severity: str = ""
    #: the targets where it is known, as their ``str``
    targets: tuple[str, ...] = ()


class GateCell(Record, frozen=True, kw_only=True):
    """One model on one target."""

    #: as the configuration calls it
    model: str
    target: str
    #: ``transformers==5.8.1``: versions of the libraries that the target names
    libraries: tuple[str, ...]
    #: of the report; without a report the result is unknown
    headline: Headline
    #: the judgement: its exit code, why it is not 0, and the fingerprints of the findings against it
    code: int
    reasons: tuple[str, ...]
    against: tuple[str, ...]
    #: fingerprints of known findings, and the baseline's entries that are no longer found
    known: tuple[str, ...]
    fixed: tuple[Known, ...]
    failed: Failed | None
    #: with its ignored findings marked; None: there is none.
    report: Report | None


class GateReport(Record, frozen=True, kw_only=True):
    """All cells of a run, model by model: what ``opcheck gate -f json`` writes."""

    schema: str = SCHEMA
    tool: str
    #: digest of the op lists
    op_lists: str
    #: 1 if a cell fails, else 3 if a result is unknown, else 0
    exit_code: int
    models: tuple[str, ...]
    targets: tuple[str, ...]
    #: whether there is a baseline: then only what is new speaks against a model.
    baseline: bool
    #: about the configuration: ignores that silence nothing or are over, targets that cannot be
    notes: tuple[str, ...]
    #: models that were not audited any more, because somebody interrupted the run
    left: tuple[str, ...]
    cells: tuple[GateCell, ...]
