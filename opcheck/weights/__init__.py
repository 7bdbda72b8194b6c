"""Reads what files of weights state of their tensors: headers and opcodes, never values, and none of their code."""
