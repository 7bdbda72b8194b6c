"""Metal kernels read by Clang, as C++ with a Metal standard library of ours: syntax, names and types.

What Clang accepts, Metal may still refuse: see ``clang.NOT_PROVEN``.
"""
