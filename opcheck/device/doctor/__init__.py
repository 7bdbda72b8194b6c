"""Examines the machine, the Python and the torch with which a program is to run on a Mac."""
