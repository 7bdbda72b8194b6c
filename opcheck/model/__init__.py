"""The frozen records that the rooms share: calls, traces, verdicts, findings, reports."""
