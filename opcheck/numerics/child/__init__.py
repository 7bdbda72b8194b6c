"""What the comparisons share in their child processes, where torch is imported."""
