"""What observes a run from within, where torch is imported."""
