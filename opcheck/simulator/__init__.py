"""Simulates the Mac's dispatcher on any machine."""
