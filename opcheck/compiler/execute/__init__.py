"""EXPERIMENTAL: Inductor's Metal kernels run on the CPU, in the place of Metal's, to catch wrong code generation.

The kernels are compiled as C++ with the header of ``compile/check``; their threads, barriers and simdgroups are
emulated (threads.cpp).  What that does not prove is ``NOT_PROVEN``.
"""

NOT_PROVEN = (
    "what a Mac computes: the kernels ran as C++ on the CPU, one thread after the other, so that no race shows; "
    "Metal's compiler and its fast math were not there, and the operators between the kernels are the CPU's"
)
