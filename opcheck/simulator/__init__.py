"""The Mac's dispatcher on any machine."""
