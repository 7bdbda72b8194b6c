"""The tables of a sweep, as Parquet, and what is no sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import UsageError
from opcheck.features.site import sweep
from tests.features.site.made import ABOUT, HOSTILE, write_sweep

pytest.importorskip("pyarrow", reason="no pyarrow here: the extra sweep")


def test_a_sweep_is_read_from_its_tables(tmp_path: Path) -> None:
    result = sweep.read(write_sweep(tmp_path / "sweep"))
    names = [model.name for model in result.models()]
    assert names == ["timm:lost", "timm:one", "timm:two", HOSTILE]
    listed = result.listed(result.models())
    assert (listed.torch, listed.macos, listed.packages) == (("2.13", "2.14"), ("15.0",), {"timm": "1.0"})
    assert result.users(["aten::mm", "aten::none"]) == {"inference": ("timm:one", HOSTILE)}
    (stopped,) = result.not_native(["aten::stub"])
    assert (stopped.model, stopped.targets) == ("timm:two", {"2.13": ("15.0",), "2.14": ("15.0",)})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "uses.parquet").unlink(), "has no table uses"),
        (lambda folder: (folder / "uses.parquet").write_bytes(b"PAR1"), "cannot read a table"),
        (
            lambda folder: (folder / "failures.parquet").write_bytes((folder / "uses.parquet").read_bytes()),
            "has no column targets",
        ),
    ],
)
def test_a_damaged_sweep_is_said_in_three_lines(tmp_path: Path, spoil: object, said: str) -> None:
    folder = write_sweep(tmp_path / "sweep")
    spoil(folder)  # type: ignore[operator]
    with pytest.raises(UsageError, match=said) as caught:
        sweep.read(folder)
    assert len(str(caught.value).splitlines()) == 3


def test_a_sweep_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", {**ABOUT, "format": 0})
    with pytest.raises(UsageError, match="of another version"):
        sweep.read(folder)
