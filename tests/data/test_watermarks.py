"""What environment variables set of the allocator's watermarks, and which values it refuses."""

from __future__ import annotations

import math

import pytest

from opcheck.common.errors import InputError
from opcheck.data.environment import HIGH, LOW, find_invalid, set_watermarks, watermarks


@pytest.mark.parametrize(
    ("variables", "ratios"),
    [
        ({}, (1.7, 1.4)),
        ({HIGH: "0.0"}, (0, 1.4)),
        ({HIGH: "0.8", LOW: "0.6"}, (0.8, 0.6)),
        # as strtod reads them
        ({HIGH: " 1.5GB"}, (1.5, 1.4)),
        ({HIGH: "1e0", LOW: "none"}, (1, 0)),
        ({HIGH: ""}, (0, 1.4)),
        ({HIGH: "0x1p-1 of it", LOW: "0x.4"}, (0.5, 0.25)),
        ({HIGH: "0x1.8", LOW: "infra"}, (1.5, math.inf)),
    ],
)
def test_the_ratios_are_read_as_the_allocator_reads_them(
    variables: dict[str, str], ratios: tuple[float, float]
) -> None:
    assert watermarks(variables) == ratios


@pytest.mark.parametrize(
    ("variables", "prints"),
    [
        ({HIGH: "2.1"}, "invalid high watermark ratio 2.1"),
        ({HIGH: "-1"}, "invalid high watermark ratio -1"),
        ({HIGH: "inf"}, "invalid high watermark ratio inf"),
        ({HIGH: "NaN"}, "invalid high watermark ratio nan"),
        ({HIGH: "0.8"}, "invalid low watermark ratio 1.4"),
        ({LOW: "1.8"}, "invalid low watermark ratio 1.8"),
        ({HIGH: "0.0", LOW: "2.5"}, "invalid low watermark ratio 2.5"),
    ],
)
def test_a_ratio_that_the_allocator_refuses_ends_a_capture(variables: dict[str, str], prints: str) -> None:
    invalid = find_invalid(watermarks(variables))
    assert invalid is not None
    assert invalid.prints == prints
    with pytest.raises(InputError, match=prints):
        set_watermarks(variables)


def test_variables_that_are_not_set_set_nothing() -> None:
    assert set_watermarks({"PYTORCH_ENABLE_MPS_FALLBACK": "1"}) is None
    assert set_watermarks({LOW: "1.0"}) == (1.7, 1)
