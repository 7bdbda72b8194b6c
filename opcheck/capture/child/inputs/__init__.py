"""The arguments of a model: given on the command line, read from files, or derived from the model."""
