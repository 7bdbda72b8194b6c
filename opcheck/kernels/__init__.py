"""The Metal kernels of a released torch, read from its macOS wheel and run on this CPU.

A kernel is AIR bitcode, which is LLVM's.  ``library`` finds it, ``air`` reads its arguments,
``lowering`` makes code of this machine of it, ``kernel_machine`` runs it, ``drive`` calls it as PyTorch's
host side does, ``judging`` compares the results with float64.  Only the extra ``kernels`` has LLVM.
"""
