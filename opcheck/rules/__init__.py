"""The rules, in the order in which their findings are reported."""

from __future__ import annotations

from opcheck.rules import (
    oc101_unsupported_call,
    oc102_fallback_env,
    oc103_fallback_always,
    oc104_unknown_operator,
    oc105_unsupported_dtype,
    oc106_limitation,
    oc107_internal_fallback,
    oc108_narrowing,
    oc110_transfers,
    oc112_advisory,
    oc113_gradient_lost,
    oc120_capture_incomplete,
    oc121_module_not_called,
    oc122_composite_not_followed,
    oc123_release_differs,
    oc130_out_of_memory,
    oc131_tensor_too_large,
    oc140_float64_origin,
    oc141_complex_origin,
    oc142_rare_dtype_origin,
    oc143_checkpoint_dtype,
    oc150_precision,
)
from opcheck.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    oc101_unsupported_call.RULE,
    oc102_fallback_env.RULE,
    oc103_fallback_always.RULE,
    oc104_unknown_operator.RULE,
    oc105_unsupported_dtype.RULE,
    oc106_limitation.RULE,
    oc107_internal_fallback.RULE,
    oc108_narrowing.RULE,
    oc110_transfers.RULE,
    oc112_advisory.RULE,
    oc113_gradient_lost.RULE,
    oc120_capture_incomplete.RULE,
    oc121_module_not_called.RULE,
    oc122_composite_not_followed.RULE,
    oc123_release_differs.RULE,
    oc130_out_of_memory.RULE,
    oc131_tensor_too_large.RULE,
    oc140_float64_origin.RULE,
    oc141_complex_origin.RULE,
    oc142_rare_dtype_origin.RULE,
    oc143_checkpoint_dtype.RULE,
    oc150_precision.RULE,
)

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}
