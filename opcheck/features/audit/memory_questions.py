"""The flags of ``opcheck audit`` on memory: how large the inputs can be, and what makes the run fit."""

from typing import Annotated

from opcheck.capture.request import CaptureRequest
from opcheck.cli.options import ProgressOptions, flag
from opcheck.common.errors import UsageError
from opcheck.data.macs import ALL_MACS, MacOptions, load_macs
from opcheck.data.registrations import OpLists
from opcheck.judge.memory.limits import parse_range
from opcheck.model.records import Record, Report


class MemoryQuestions(Record, frozen=True, kw_only=True):
    """Questions about memory that go beyond the estimate."""

    vary: Annotated[
        tuple[str, ...],
        flag("The largest batch=1..64 that runs. Repeatable.", metavar="NAME=RANGE"),
    ] = ()
    plan: Annotated[bool, flag("The smallest change that fits the Mac.")] = False

    def check(self, mac: MacOptions) -> None:
        """Refuse questions that do not go together, and ranges that cannot be read.

        Raises:
            UsageError: a flag is wrong.
        """
        for text in self.vary:
            parse_range(text)
        if self.plan and (self.vary or not mac.decisive_memory()):
            raise UsageError(
                "a plan is for one Mac and the model as it is",
                context="--plan --vary" if self.vary else "--plan",
                hint='name the Mac, and audit the ranges of --vary alone: --plan --mac "M4 Pro 24 GB"',
            )

    def report(
        self, request: CaptureRequest, lists: OpLists, mac: MacOptions, progress: ProgressOptions
    ) -> Report | None:
        """Return the report with the answers; None without a question.

        Raises:
            OpcheckError: as an audit does.
        """
        from opcheck import orchestrator

        memory, verbose = mac.decisive_memory(), progress.verbose
        with progress.shown() as say:
            if self.plan:
                return orchestrator.audit_plan(
                    request, lists, mac=memory, progress=say, show_output=verbose
                )
            if not self.vary:
                return None
            return orchestrator.audit_limits(
                request,
                lists,
                tuple(map(parse_range, self.vary)),
                mac=memory,
                macs=[each.memory for each in load_macs()] if mac.mac == ALL_MACS else (),
                progress=say,
                show_output=verbose,
            )
