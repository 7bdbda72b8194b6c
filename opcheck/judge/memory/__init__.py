"""Estimates how much memory a run takes on MPS, what holds it, and which Macs have enough."""
