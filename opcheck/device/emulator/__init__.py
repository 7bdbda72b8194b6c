"""Runs unmodified programs on an emulated Mac: its dispatcher and errors, this CPU's numbers."""
