"""The results of a run of the gate: a cell for each model on each target."""

from opcheck.common.vocabulary import Headline
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED, Judgement
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
    judgement: Judgement
    #: ``transformers==5.8.1``: versions of the libraries that the target names
    libraries: tuple[str, ...] = ()
    #: with its ignored findings marked; None: there is none.
    report: Report | None = None
    failed: Failed | None = None
    #: fingerprints of known findings, and the baseline's entries that are no longer found
    known: tuple[str, ...] = ()
    fixed: tuple[Known, ...] = ()

    @property
    def headline(self) -> str:
        """Return the report's headline; without a report, that the result is unknown."""
        return self.report.headline if self.report else "could not tell"


class GateReport(Record, frozen=True, kw_only=True):
    """All cells of a run, model by model."""

    schema: str = SCHEMA
    tool: str
    #: digest of the op lists
    op_lists: str
    models: tuple[str, ...]
    targets: tuple[str, ...]
    cells: tuple[GateCell, ...]
    #: whether there is a baseline: then only what is new speaks against a model.
    baseline: bool = False
    #: about the configuration: ignores that silence nothing or are over, targets that cannot be
    notes: tuple[str, ...] = ()
    #: models that were not audited any more, because somebody interrupted the run
    left: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """Return the exit code: 1 if a cell fails, else 3 if a result is unknown, else 0."""
        codes = {cell.judgement.code for cell in self.cells} | (
            {COULD_NOT_TELL} if self.left else set()
        )
        return next((code for code in (FINDINGS, COULD_NOT_TELL) if code in codes), PASSED)


class SavedCell(Record, frozen=True, kw_only=True):
    """One model on one target, as the saved document has it."""

    model: str
    target: str
    libraries: tuple[str, ...]
    headline: Headline
    code: int
    reasons: tuple[str, ...]
    against: tuple[str, ...]
    known: tuple[str, ...]
    fixed: tuple[Known, ...]
    failed: Failed | None
    report: Report | None


class SavedGate(Record, frozen=True, kw_only=True):
    """What ``opcheck gate -f json`` writes; ``features/gate/page.py`` makes it of a GateReport."""

    schema: str = SCHEMA
    tool: str
    op_lists: str
    exit_code: int
    models: tuple[str, ...]
    targets: tuple[str, ...]
    baseline: bool
    notes: tuple[str, ...]
    left: tuple[str, ...]
    cells: tuple[SavedCell, ...]
