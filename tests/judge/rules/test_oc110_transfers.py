from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call, spec


def test_counts_copies_and_bytes() -> None:
    (finding,) = findings_by(
        "OC110", call("aten::foo"), call("aten::foo", inputs=(spec(2), spec(3)), outputs=(spec(4),))
    )
    assert finding.message == (
        "the CPU fallbacks make 3 copies to the CPU (72 bytes) and 2 back (48 bytes) in 1 region"
    )
    assert finding.count == 2


def test_silent_without_copies() -> None:
    assert not findings_by("OC110", call("aten::mm"), call("aten::nope"))
    assert not findings_by("OC110", call("aten::foo", inputs=(), outputs=()))
