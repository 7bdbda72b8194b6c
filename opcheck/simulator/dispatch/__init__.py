"""The Mac's dispatcher on any machine: tensors, routes, shapes and operators.  It imports nothing of ``visible/``."""
