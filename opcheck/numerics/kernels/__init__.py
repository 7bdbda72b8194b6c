"""Computes the calls of a program a second time by the Metal kernels of a release, and compares the numbers."""
