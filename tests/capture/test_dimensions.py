"""The names of the dimensions that a user may vary."""

from __future__ import annotations

import pytest

from opcheck.capture.dimensions import dimensions


@pytest.mark.parametrize(
    ("specs", "names"),
    [
        (("input_ids=1x128:int64",), {"batch": 1, "length": 128}),
        (("input_ids=2x9:int64", "attention_mask=2x9:int64"), {"batch": 2, "length": 9}),
        (("1x3x224x200:float32",), {"batch": 1, "height": 224, "width": 200}),
        (("1x16x5x60x90:float16",), {"batch": 1, "frames": 5, "height": 60, "width": 90}),
        (("input_features=1x80x3000:float32",), {"batch": 1, "length": 3000}),
        (("hidden_states=1x77x768:float32",), {"batch": 1, "length": 77}),
        (("input_values=1x16000:float32",), {"batch": 1, "length": 16000}),
        (("4x8:float32",), {"batch": 4}),
        # Inputs with other first sizes share no batch.
        (("x=3x4:float32", "y=5x4:float32"), {}),
        (("scalar:float32",), {}),
    ],
)
def test_usual_names(specs: tuple[str, ...], names: dict[str, int]) -> None:
    usual = {name: axes[0].size for name, axes in dimensions(specs).items() if "." not in name}
    assert usual == names


def test_each_axis_has_a_name_of_its_own() -> None:
    names = dimensions(("2x3:float32", "mask=2x7:bool"))
    assert {name for name in names if "." in name} == {"input0.0", "input0.1", "mask.0", "mask.1"}
    assert [axis.place for axis in names["batch"]] == [0, 1]
