"""EXPERIMENTAL: Inductor's Metal kernels run on the CPU, in the place of Metal's, to catch wrong code generation.

The kernels are compiled as C++ with the header of ``compile/check``; their threads, barriers and simdgroups are
emulated (threads.cpp).  What that does not prove is in ``inductor.NOT_PROVEN``.
"""
