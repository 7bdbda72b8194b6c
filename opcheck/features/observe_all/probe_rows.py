"""Compares what a device did with PyTorch's operator database with the predictions of the op lists."""

from collections.abc import Iterator, Sequence
from functools import cache

from opcheck.common.errors import OpcheckError
from opcheck.data.device_evidence import EvidenceFile, Result
from opcheck.data.registrations import OpLists
from opcheck.device.observation_evidence import Host, HostRow
from opcheck.lookup.answer import answer
from opcheck.lookup.answer_records import Answer

#: What a Mac prints where an operator has no kernel and the fallback variable is not set.
_NO_KERNEL = "not currently implemented for the MPS device"
#: Effects of limitations that may apply to some samples: then the lists predict neither.
_DEPENDS = {"raises": "unsupported", "falls_back": "fallback", "aborts": "aborts"}


def rows_of_probe(evidence: EvidenceFile, host: Host, lists: OpLists) -> Sequence[HostRow]:
    """Return a row for each operator of each result that the lists predict."""

    @cache
    def predict(op: str, dtype: str) -> Answer | None:
        try:
            return answer(op, host.torch, host.macos, dtype, lists=lists)
        except OpcheckError:
            return None

    return [row for result in evidence.results for row in _rows(result, predict)]


def _rows(result: Result, predict: object) -> Iterator[HostRow]:
    for op, observed in _list_observed(result):
        answered: Answer | None = predict(op, result.dtype)  # type: ignore[operator]
        yield HostRow(
            subject=result.opinfo,
            op=op,
            dtypes=(result.dtype,),
            predicted=_predict(answered, observed) if answered else "unknown",
            observed=observed,
            count=max(result.samples, 1),
            text=result.text if op == result.op or not result.op else "",
        )


def _list_observed(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the operators of a result, and what each did."""
    if result.outcome == "crashes":
        yield f"torch.{result.opinfo.partition('/')[0]}", "aborts"
        return
    for op, state in result.calls.items():
        if op != result.op:
            yield op, "wrong" if state == "wrong" else "native"
    if result.op:
        fell_back = result.outcome == "falls back" or _NO_KERNEL in result.text
        other = "wrong" if result.outcome == "wrong" else "unsupported"
        yield result.op, "fallback" if fell_back else other


def _predict(answered: Answer, observed: str) -> str:
    """Return what the lists predict; where it depends on inputs, what was observed if they name it."""
    notes = [note for each in answered.overloads for note in each.limitations]
    if any(_DEPENDS.get(note.effect) == observed for note in notes):
        return observed if answered.status == "native" else str(answered.status)
    if observed == "wrong":
        return "wrong" if answered.wrong else "native"
    return str(answered.status)
