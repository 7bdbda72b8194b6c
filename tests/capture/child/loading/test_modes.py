from __future__ import annotations

import warnings

import pytest
import torch

import opcheck
from opcheck.common.errors import ModelLoadError


@pytest.mark.parametrize("how", ["script", "trace"])
def test_a_torchscript_module_is_refused_for_training_before_its_labels_are_looked_for(how: str) -> None:
    x = torch.ones(2, 3)
    layer = torch.nn.Linear(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        model = torch.jit.script(layer) if how == "script" else torch.jit.trace(layer, x)
    with pytest.raises(ModelLoadError, match="a TorchScript module is audited for inference only"):
        opcheck.audit(model, (x,), torch="2.13", macos="15", mode="train")
