"""What compiles, in a child process: the only part of the feature that imports torch."""
