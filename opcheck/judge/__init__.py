"""Turns a trace and a target into verdicts, findings and a report."""
