"""Source that is read and never run: lines that were written for CUDA and meet a Mac."""
