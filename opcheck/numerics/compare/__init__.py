"""A model on a real device, each operator call held against float64 on the CPU.  Imports no torch."""
