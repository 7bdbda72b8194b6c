"""The statements of unbuilt kernels are what their script writes, and not edited by hand."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.common.versions import Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import data_directory, load
from scripts import unbuilt_kernels
from scripts.unbuilt_kernels import FILE, Key, file_text

LINES = [release.line for release in load().releases if release.version >= Version(2, 6)]


def statements() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load_shipped(data_directory() / FILE)["limitations"]
    return rows


def spanned(torch: dict[str, str | None]) -> list[str]:
    until = torch["until"]
    return LINES[LINES.index(torch["since"]) : LINES.index(until) if until else None]  # type: ignore[arg-type]


def cases() -> dict[tuple[Key, str], list[str]]:
    pairs: dict[tuple[Key, str], list[str]] = defaultdict(list)
    for each in statements():
        (evidence,) = each["evidence"]
        kernels = tuple(evidence["detail"].rpartition(" compiled kernels ")[2].split(", "))
        for op in each["ops"]:
            for dtype in each["dtypes"]:
                key = (op, each["error"]["text"], kernels, "condition" in each)
                pairs[key, dtype] += spanned(each["torch"])
    return pairs


def test_the_file_has_the_form_that_its_script_gives_to_its_contents() -> None:
    assert file_text(cases(), LINES) == (data_directory() / FILE).read_text(encoding="utf-8")


def test_a_hand_that_narrows_one_overload_of_a_statement_would_change_its_form() -> None:
    contents = cases()
    key = next(iter(contents))
    assert file_text({**contents, key: contents[key][1:]}, LINES) != file_text(contents, LINES)


@pytest.mark.wheel
def test_the_kernels_of_the_newest_wheel_lack_the_dtypes_that_the_file_names() -> None:
    newest = load().releases[-1]
    read = {(op, dtype) for op, _, dtypes in unbuilt_kernels.refused(newest.torch, newest.line) for dtype in dtypes}
    assert read == {(key[0], dtype) for (key, dtype), lines in cases().items() if newest.line in lines}
