"""What is wrong with the machine, the Python and the torch that a program is to run with on a Mac."""
