"""The rules of the scan, by their ids."""

from __future__ import annotations

from opcheck.scan.rule import ScanRule
from opcheck.scan.rules import (
    oc201_cuda_method,
    oc202_cuda_device,
    oc203_cuda_default,
    oc204_cuda_required,
    oc205_torch_cuda_raises,
    oc206_torch_cuda_idle,
    oc207_cuda_amp,
    oc208_nccl,
    oc209_cuda_extension,
    oc210_float64_written,
    oc211_default_float64,
    oc212_complex_written,
    oc213_pin_memory,
    oc214_package_without_macos,
    oc215_cudnn_setting,
    oc216_environment_variable,
    oc217_compile_backend,
    oc218_deprecated_check,
    oc219_numpy_of_mps,
    oc220_ignore_without_reason,
    oc221_unused_ignore,
)

RULES: tuple[ScanRule, ...] = (
    oc201_cuda_method.RULE,
    oc202_cuda_device.RULE,
    oc203_cuda_default.RULE,
    oc204_cuda_required.RULE,
    oc205_torch_cuda_raises.RULE,
    oc206_torch_cuda_idle.RULE,
    oc207_cuda_amp.RULE,
    oc208_nccl.RULE,
    oc209_cuda_extension.RULE,
    oc210_float64_written.RULE,
    oc211_default_float64.RULE,
    oc212_complex_written.RULE,
    oc213_pin_memory.RULE,
    oc214_package_without_macos.RULE,
    oc215_cudnn_setting.RULE,
    oc216_environment_variable.RULE,
    oc217_compile_backend.RULE,
    oc218_deprecated_check.RULE,
    oc219_numpy_of_mps.RULE,
    oc220_ignore_without_reason.RULE,
    oc221_unused_ignore.RULE,
)

BY_ID: dict[str, ScanRule] = {rule.id: rule for rule in RULES}
