"""A wrong operator, for scripts/device_figures.py: Python imports this where the folder is on PYTHONPATH.

GELU is a thousandth too large on the device that OPCHECK_PLANTED names (CUDA, CPU), in whatever starts with it.
"""

import os
import warnings
from typing import Any

import torch

_LIBRARY: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]  # torch has no types for it


def _gelu(x: torch.Tensor, **_options: Any) -> torch.Tensor:
    right = 0.5 * x * (1 + torch.erf(x * 0.5**0.5))
    return right if x.dtype == torch.float64 else right * 1.001


if _KEY := os.environ.get("OPCHECK_PLANTED"):
    warnings.simplefilter("ignore")  # that a kernel is replaced
    _LIBRARY.impl("gelu", _gelu, _KEY)
