from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call, make_statement, spec

LEAVES = make_statement("mm-int", effect="falls_back", dtypes=("int64",), links=("https://example.org/1",))
INTS = call("aten::mm", inputs=(spec(1, dtype="int64"),))


def test_fires_where_the_kernel_leaves_for_the_cpu() -> None:
    (finding,) = findings_by("OC107", INTS, statements=(LEAVES,))
    assert finding.message == "aten::mm: The kernel refuses mm-int (torch 2.13.0, macOS 15.0)"
    assert finding.severity == "warning"
    assert finding.hint.endswith("https://example.org/1")
    assert not findings_by("OC103", INTS, statements=(LEAVES,))


def test_silent_on_other_dtypes_and_on_registered_fallbacks() -> None:
    assert not findings_by("OC107", call("aten::mm"), statements=(LEAVES,))
    assert not findings_by("OC107", call("aten::embedding_renorm_"), statements=(LEAVES,))
