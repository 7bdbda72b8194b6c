"""The page of how often the lists agree is what its figures give."""

from __future__ import annotations

import json

from scripts import refresh_agreement
from scripts.opinfo.compare import Pair
from scripts.opinfo.reference import REASONS


def test_the_page_is_written_from_its_figures() -> None:
    figures = json.loads(refresh_agreement.FIGURES.read_text(encoding="utf-8"))
    page = refresh_agreement.PAGE.read_text(encoding="utf-8")
    assert page == refresh_agreement.page(figures), "python -m scripts.refresh_agreement"


def test_a_pair_that_says_nothing_of_mps_counts_only_where_none_is_left_out() -> None:
    agreeing = Pair("2.13", "forward", "add", "float32", "pass", False, "", False)
    random = Pair("2.13", "forward", "rand", "float32", "xfail", None, REASONS["random"], False)
    refused = Pair("2.13", "forward", "relu", "bool", "xfail", None, REASONS["raises"], True)
    counted = refresh_agreement.counted([agreeing, random, refused])
    assert (counted["pairs"], counted["judged"], counted["agree"]) == (3, 1, 1)
    assert (counted["not_refused"], counted["same_not_refused"]) == (2, 1)
    assert (counted["compared"], counted["same"]) == (3, 2)


def test_the_table_by_dtype_has_the_agreement_of_each_release_and_pass() -> None:
    right = Pair("2.13", "forward", "svd", "float32", "xfail", True, "")
    missed = Pair("2.12", "forward", "sort", "float16", "xfail", False, "")
    rows = refresh_agreement.tabulate_by_dtype([right, missed]).splitlines()
    cells = {tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows}
    assert ("all", "forward", "all", "2", "0.500", "1.000", "0.500") in cells
    assert ("2.12", "forward", "all", "1", "0.000", "-", "0.000") in cells
    assert ("all", "forward", "float32", "1", "1.000", "1.000", "1.000") in cells


def test_forward_agreement_is_at_least_0_985() -> None:
    rows = json.loads(refresh_agreement.FIGURES.read_text(encoding="utf-8"))["opinfo"]["forward"]
    assert sum(row["agree"] for row in rows) / sum(row["judged"] for row in rows) >= 0.985
