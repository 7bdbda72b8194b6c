"""Repeats each operator call of a run in float64: ``precision``, ``compare`` and ``probe``.  Imports no torch."""
