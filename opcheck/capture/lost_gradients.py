"""Operators through which no gradient passes: torch only warns, and what comes before learns nothing.

An operator with a kernel on MPS and no derivative of its own goes through the fallback of the autograd key:
CompositeImplicitAutograd does not serve it (aten/src/ATen/core/dispatch/OperatorEntry.cpp,
computeDispatchTableEntryWithDebug), VariableFallbackKernel.cpp does, and that warns in backward
(torch/csrc/autograd/autograd_not_implemented_fallback.cpp).  ``simulator/mps_registrations.py`` registers what the target
registers, so the dispatcher here takes the same way.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any

from opcheck.model.records import Problem, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.capture.recorder import Recorder

_SAID = re.compile(r"(?P<op>\w+::\w+): an autograd kernel was not registered.*?behavior\.")


@contextlib.contextmanager
def heard() -> Iterator[dict[str, str]]:
    """The warnings of the block, by operator; they are shown as before."""
    found: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "always", message=r"\w+::\w+: an autograd kernel was not registered"
        )
        show = warnings.showwarning

        def listen(message: Any, *args: Any, **kwargs: Any) -> None:
            match = _SAID.match(str(message))
            if match is None:
                show(message, *args, **kwargs)
            else:
                found.setdefault(match["op"], match[0])

        warnings.showwarning = listen
        yield found


def problems(found: dict[str, str], recorder: Recorder) -> tuple[Problem, ...]:
    """One for each line that called such an operator before backward."""
    lines: dict[tuple[str, SourceLocation | None], Problem] = {}
    for entry in recorder.calls:
        # The warning names no overload.
        op = entry.call.route.name
        said = found.get(op.partition(".")[0])
        if said is not None and entry.phase == "forward":
            location, module = recorder.place(entry)
            lines.setdefault(
                (op, location),
                Problem(
                    kind="gradient_lost", message=said, op=op, location=location, module=module
                ),
            )
    return tuple(lines.values())
