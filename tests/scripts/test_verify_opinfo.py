"""The page that holds our verdicts against PyTorch's CI, over pairs made here."""

from __future__ import annotations

from opcheck.device.verify import Verification, ratio
from scripts.opinfo.compare import Pair
from scripts.opinfo.disagreements import Explanation
from scripts.opinfo.evaluation import Pass
from scripts.verify_opinfo import _page, verified


def pair(opinfo: str, expected: str, *, predicted: bool | None, dtype: str = "float32") -> Pair:
    return Pair("2.13", "forward", opinfo, dtype, expected, predicted, "")


PAIRS = [
    pair("sin", "pass", predicted=False),
    pair("sin", "pass", predicted=False, dtype="float16"),
    pair("sort", "xfail", predicted=False),
    pair("svd", "xfail", predicted=True),
    pair("tan", "xfail", predicted=None),
]


def test_the_figures_are_those_of_verify() -> None:
    result = verified(PAIRS, "forward", "2.13", "15.0")
    rates = {rate.status: [rate.both, rate.predicted, rate.observed] for rate in result.rates}
    assert rates == {"native": [2, 3, 2], "unsupported": [1, 1, 2]}
    assert [
        (contradiction.op, contradiction.predicted, contradiction.observed) for contradiction in result.contradictions
    ] == [("sort", "native", "unsupported")]
    assert ratio(2, 3) == "0.667"


def test_each_contradiction_stands_beside_its_reason() -> None:
    reason = Explanation(class_="ties", reason="Equal keys.", opinfos=("sort",), expected="xfail")
    results: dict[Pass, Verification] = {"forward": verified(PAIRS, "forward", "2.13", "15.0")}
    page = "\n".join(_page(results, PAIRS, [reason], "2.13", "15.0"))
    assert "5 pairs; of 1 the prediction knows nothing" in page
    assert "1 contradictions, 1 of them with a reason" in page
    assert "| ties" in page
    assert "sort (float32)" in page
    assert "Equal keys." in page
