from __future__ import annotations

from opcheck.model.records import Finding, Lifetime
from tests.judge.rules.checking import findings_by
from tests.made import call, spec

GIB = 1 << 30


def _found(size: int, **others: object) -> list[Finding]:
    """For a run that has four tensors of ``size`` bytes in its second call."""
    lives = tuple(Lifetime(storage=number, nbytes=size, first=1, freed=None, kind="result") for number in range(4))
    return findings_by("OC130", call("aten::mm", 1), call("aten::mm", 2), lifetimes=lives, **others)


def test_a_mac_that_is_too_small_is_an_error_with_the_releases_own_text() -> None:
    (finding,) = _found(3 * GIB, mac=8)
    assert finding.severity == "error"
    assert finding.message == ("an estimated 12.0 GiB on a Mac of 8 GB: PyTorch raises above 9.1 GiB")
    assert finding.prints.startswith(
        "MPS backend out of memory (MPS allocated: 9.00 GiB, other allocations: 0 bytes, "
        "max allowed: 9.07 GiB). Tried to allocate 3.00 GiB on shared pool."
    )
    assert finding.hint.endswith("a Mac of 18 GB would do")
    assert [place.location.line for place in finding.locations if place.location] == [2]


def test_above_what_metal_recommends_is_a_warning() -> None:
    (finding,) = _found(3 * GIB, mac=16)
    assert (finding.severity, finding.prints) == ("warning", "")
    assert "Metal recommends 10.7 GiB: it may swap" in finding.message


def test_one_tensor_larger_than_a_buffer() -> None:
    lives = (Lifetime(storage=1, nbytes=5 * GIB, first=0, freed=None, kind="result"),)
    (finding,) = findings_by("OC130", call("aten::mm"), lifetimes=lives, mac=8)
    assert finding.prints == "Invalid buffer size: 5.00 GiB"
    assert finding.message.endswith("a tensor takes more than one buffer may")


def test_between_two_known_sizes_the_smaller_one_counts() -> None:
    assert _found(3 * GIB, mac=12)[0].severity == "error"
    assert _found(3 * GIB, mac=4)[0].message.startswith("an estimated 12.0 GiB on a Mac of 8 GB")


def test_without_a_mac_it_speaks_where_none_is_large_enough() -> None:
    (finding,) = _found(240 * GIB)
    assert "on a Mac of 512 GB" in finding.message
    assert "as it is, no Mac up to 512 GB would do" in finding.hint
    assert not _found(3 * GIB)


def test_silent_where_it_fits_and_where_nothing_is_known() -> None:
    assert not _found(GIB, mac=8)
    assert not findings_by("OC130", call("aten::mm", inputs=(spec(1),)), mac=8)
