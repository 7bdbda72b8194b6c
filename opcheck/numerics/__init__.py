"""Each operator call of a run made again in float64: ``precision``, ``compare`` and ``probe``.  Imports no torch."""
