"""The checks of quantizers, followed with a Mac's answers, and the list of methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opcheck.common.versions import Version
from opcheck.data.packages import PACKAGES
from opcheck.features.weights import quantizers
from opcheck.features.weights.weights_records import ORDER
from tests.command_line import CommandLine

TORCH = Version(2, 15)
SOURCE = """
class Quantizer(HfQuantizer):
    def validate_environment(self, *args, **kwargs):
        if not is_accelerate_available():
            raise ImportError("no accelerate")
        device_map = kwargs.get("device_map")
        if isinstance(device_map, dict) and "cpu" in device_map.values():
            raise ValueError("offload")
        if self.setting_of_a_model:
            raise ValueError("unknown to the machine")
        {body}
"""
BODIES = {
    "pass": ("", False),
    "if not torch.cuda.is_available(): raise RuntimeError('no ' f'GPU {VERSION}')": (
        "RuntimeError: no GPU {VERSION}",
        False,
    ),
    "if torch.cuda.is_available(): raise RuntimeError('x')": ("", False),
    "if not is_vptq_available(): raise ImportError('vptq')": ("ImportError: vptq", False),
    "if self.pre_quantized: self.quantization_config.dequantize = True": ("", True),
    "if get_current_accelerator().type not in ['cuda', 'cpu']: raise OSError('mps')": ("OSError: mps", False),
    "if is_torch_greater_or_equal('2.16'): return\n        raise OSError('old')": ("OSError: old", False),
    "if not torch.cuda.is_available() and not is_torch_xpu_available(): return\n        raise OSError": ("", False),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_check_is_followed_with_the_answers_of_a_mac(tmp_path: Path, body: str) -> None:
    file = tmp_path / "quantizer.py"
    file.write_text(SOURCE.format(body=body) if "{" not in body else SOURCE.replace("{body}", body))
    check = quantizers._check("method", file, "Quantizer", "transformers", TORCH)
    assert check is not None
    assert (check.raises, check.dequantizes) == BODIES[body]


def test_the_quantizers_of_the_installed_libraries_are_found() -> None:
    pytest.importorskip("transformers")
    found = quantizers.checks("transformers", TORCH)
    assert len(found) >= 21
    assert found["eetq"].raises == "RuntimeError: No GPU found. A GPU is needed for quantization."
    assert found["fp8"].dequantizes
    assert found["mxfp4"].dequantizes
    assert not found["hqq"].raises
    assert "quantizer_eetq.py:" in found["eetq"].where


def test_the_list_agrees_with_the_checks() -> None:
    for method, check in quantizers.checks("transformers", TORCH).items():
        listed = PACKAGES.load().methods.get(method)
        if listed is not None and (check.raises or check.dequantizes):
            assert listed.outcome == ("raises_at_load" if check.raises else "casts"), method
            assert listed.prints == check.raises, method


def test_most_methods_are_decided_with_evidence(opcheck: CommandLine) -> None:
    result = opcheck("weights", "--methods", "-f", "json", "--torch", "2.15")
    methods = {each["part"]: each for each in json.loads(result.out)["methods"]}
    wanted = [
        "bitsandbytes",
        "gptq",
        "awq",
        "torchao",
        "quanto",
        "hqq",
        "eetq",
        "aqlm",
        "compressed-tensors",
        "fbgemm_fp8",
        "fp8",
        "mxfp4",
        "higgs",
        "spqr",
        "vptq",
        "bitnet",
        "quark",
        "auto-round",
        "sinq",
        "fp_quant",
        "metal",
    ]
    decided = [name for name in wanted if methods[name]["outcome"] != "unknown"]
    assert len(decided) >= 18
    assert all(methods[name]["evidence"] and methods[name]["because"] for name in wanted)
    assert {each["outcome"] for each in methods.values()} <= {*ORDER}


@pytest.mark.parametrize("columns", [80, 100])
def test_the_list_of_methods_fits_the_columns(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = opcheck("weights", "--methods", "--torch", "2.15").out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "since bitsandbytes 0.49: bitsandbytes has a macOS wheel" in " ".join(" ".join(lines).split())
