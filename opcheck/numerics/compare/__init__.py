"""Runs a model on a real device, and compares each operator call with float64 on the CPU.  Imports no torch."""
