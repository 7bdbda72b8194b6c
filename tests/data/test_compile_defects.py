"""The known defects of Inductor for Metal, and that the file cannot say nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Version
from opcheck.data.compile_defects import DEFECTS
from opcheck.data.registrations import data_directory


@pytest.mark.parametrize(
    ("defect", "broken", "right"),
    [
        ("welford-barrier", "2.12", "2.13"),
        ("branches-share-names", "2.13", "2.14"),
        ("branches-share-names", "2.12", "2.11"),
        ("missing-math", "2.14", "2.15"),
        ("round-half", "2.8", "2.9"),
        ("python-floats", "2.7", "2.8"),
        ("nested-masks", "2.11", "2.12"),
        ("masked-blocks-share-a-value", "2.14", "2.15"),
        ("masked-blocks-share-a-value", "2.11", "2.10"),
    ],
)
def test_the_spans_are_those_of_the_wheels(defect: str, broken: str, right: str) -> None:
    (result,) = [item for item in DEFECTS.load().defects if item.id == defect]
    assert Version.parse(broken) in result.torch
    assert Version.parse(right) not in result.torch


def test_a_kernel_is_known_by_its_source_and_operators() -> None:
    by_id = {defect.id: defect.when for defect in DEFECTS.load().defects}
    source = "threadgroup long tmp_acc_0[32]; c10::metal::threadgroup_max(tmp_acc_0, x, r0_0, 64);"
    assert by_id["int64-extremes"].holds_for(source, frozenset())
    assert not by_id["int64-extremes"].holds_for(source.replace("long", "float"), frozenset())
    assert not by_id["missing-math"].holds_for("sinh", frozenset({"aten::sinh"}))


NESTED = """\
        for(auto r0_1_cnt = 0; r0_1_cnt < 2; ++r0_1_cnt) {
            int r0_1 = 2 * c10::metal::floor_divide(r0_index, 64) + r0_1_cnt;
        for(auto r0_0_cnt = 0; r0_0_cnt < 2; ++r0_0_cnt) {
"""

#: An argmax in the same kernel has an accumulator of long as well.
PRODUCT = """\
        threadgroup long tmp_acc_1[1];
        threadgroup {} tmp_acc_2[1];
        auto tmp1 = c10::metal::threadgroup_argmax(tmp_acc_0, tmp_acc_1, tmp0, r0_index * 1, 64);
        auto tmp2 = c10::metal::threadgroup_prod(tmp_acc_2, tmp0, r0_index * 1, {});
"""
EXTREME = PRODUCT.replace("threadgroup_prod", "threadgroup_max")


@pytest.mark.parametrize(
    ("defect", "source", "other"),
    [
        ("nested-loops", NESTED, NESTED.replace("r0_0_cnt", "x_cnt")),
        ("int64-product", PRODUCT.format("long", 64), PRODUCT.format("float", 64)),
        ("int64-product", PRODUCT.format("long", 33), PRODUCT.format("long", 8)),
        ("int64-product", PRODUCT.format("long", 1023), PRODUCT.format("long", 1024)),
        ("int64-extremes", EXTREME.format("long", 64), EXTREME.format("float", 64)),
        ("int64-extremes", EXTREME.format("long", 8), EXTREME.format("long", 4096)),
        ("round-half", "auto tmp1 = metal::round(tmp0);", "auto tmp1 = metal::rint(tmp0);"),
        ("modulo-65536", "(((xindex) / (65536)) % (6))", "(((xindex) / (65536)) % (8))"),
        ("modulo-65536", "(((xindex) / (65536)) % (12))", "(((xindex) / (65535)) % (12))"),
        ("negative-floor-division", "in_ptr0[1 + (((-1)*x0) / (2))]", "in_ptr0[(x0) / (2)]"),
        (
            "negative-floor-division",
            "in_ptr0[1 + ((8*x1 + ((-1)*x0)) / (2))]",
            "in_ptr2[64*x0 + 320*(((-768) + x1) % (3)) + ((((-768) + x1) / (3)) % (64))]",
        ),
        ("negative-floor-division", "in_ptr0[4 + (((-3)*x0) / (4))]", "in_ptr0[(15 + ((-1)*x0)) / (4)]"),
        ("where-is-no-function", "in_ptr0[Where(x0 < 1, 0, 1)]", "in_ptr0[x0 < 1 ? 0 : 1]"),
        (
            "bfloat16-argmax",
            "threadgroup bfloat tmp_acc_0[19]; c10::metal::threadgroup_argmax(tmp_acc_0, tmp_acc_1)",
            "threadgroup float tmp_acc_0[19]; c10::metal::threadgroup_argmax(tmp_acc_0, tmp_acc_1)",
        ),
        (
            "masked-loads",
            "auto tmp7 = in_ptr0[(-1) + x0];\nauto tmp8 = tmp6 ? tmp7 : 0.0;",
            "auto tmp7 = in_ptr0[x0];\nauto tmp8 = tmp6 ? tmp7 : 0.0;",
        ),
    ],
)
def test_a_form_in_the_text_is_known_and_its_neighbour_is_not(defect: str, source: str, other: str) -> None:
    (when,) = [item.when for item in DEFECTS.load().defects if item.id == defect]
    assert when.holds_for(source, frozenset())
    assert not when.holds_for(other, frozenset())


@pytest.mark.parametrize(
    ("defect", "call", "other"),
    [
        (
            "attention-value-dimension",
            "scaled_dot_product_attention(float32[1, 16, 32], float32[1, 16, 32], float32[1, 16, 24])",
            "scaled_dot_product_attention(float32[1, 16, 32], float32[1, 16, 32], float32[1, 16, 32])",
        ),
        (
            "convolution-backward-layout",
            "aten.convolution_backward.default(float32[2, 64, 25, 25], [True]) channels_last",
            "aten.convolution_backward.default(float32[2, 64, 25, 25], [True])",
        ),
        (
            "transposed-convolution-layout",
            "aten.convolution.default(float32[2, 16, 8, 8], [1, 1], True, [0, 0], 1) channels_last",
            "aten.convolution.default(float32[2, 16, 8, 8], [1, 1], False, [0, 0], 1) channels_last",
        ),
    ],
)
def test_a_call_that_stays_eager_is_known_by_its_arguments(defect: str, call: str, other: str) -> None:
    (when,) = [item.when for item in DEFECTS.load().defects if item.id == defect]
    assert when.holds_for_call(call)
    assert not when.holds_for_call(other)


@pytest.mark.parametrize(
    ("defect", "note"),
    [
        ("nested-masks", "tmp_scoped_2 of an outer masked block is hidden by that of an inner block"),
        ("masked-blocks-share-a-value", "tmp7 is tmp1 in a masked block, and replaces tmp0 of another"),
    ],
)
def test_what_went_wrong_while_a_kernel_was_written_is_known(defect: str, note: str) -> None:
    when = {item.id: item.when for item in DEFECTS.load().defects}[defect]
    assert when.holds_for("", frozenset(), notes=[note])
    assert not when.holds_for(note, frozenset(), notes=["another note"])


def test_an_argmax_over_all_dimensions_is_known_by_the_order_of_its_tensor() -> None:
    (when,) = [defect.when for defect in DEFECTS.load().defects if defect.id == "argmax-of-dimensions"]
    source = "c10::metal::threadgroup_argmax(tmp_acc_0)"
    permuted = "aten.argmax.default(float32[40, 8, 30; 30, 1200, 1 permuted])"
    assert when.holds_for(source, frozenset(), [permuted])
    assert not when.holds_for(source, frozenset(), ["aten.argmax.default(float32[40, 8, 30])"])
    sliced = "aten.argmax.default(float32[6, 4; 8, 2])"
    assert not when.holds_for(source, frozenset(), [sliced])


def test_a_failure_is_known_by_its_message() -> None:
    by_id = {defect.id: defect.when for defect in DEFECTS.load().defects}
    assert by_id["missing-math"].explains("Inductor's Metal backend does not implement sinh")
    assert not by_id["missing-math"].explains("Inductor's Metal backend does not implement sinhc")
    assert not by_id["welford-barrier"].explains("welford")
    float64 = "Inductor's Metal backend has no float64"
    assert by_id["python-floats"].explains(f"{float64}, where Dynamo passes floats of Python")
    assert not by_id["python-floats"].explains(float64)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("effect: fails", "effect: hurts", "defects.0.effect: Invalid enum value 'hurts'"),
        ('until: "2.8"', 'until: "2.7"', "defects.0.torch: no version lies in this span"),
        ('since: "2.7"', 'since: "2.7.1"', "in quotes: 2.7.1"),
        ("when: {any: true}", "when: {}", "nothing: say any: true"),
        ('"welford_combine"', '"welford("', "not a pattern: welford("),
        ("id: welford-barrier", "id: prototype", "twice: prototype"),
        ("schema: 1", "schema: 2", "the schema must be 1"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (data_directory() / DEFECTS.name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / DEFECTS.name).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(OpListError) as raised:
        DEFECTS.load(tmp_path)
    assert said in raised.value.message
