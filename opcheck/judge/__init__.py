"""A trace and a target become verdicts, findings and a report."""
