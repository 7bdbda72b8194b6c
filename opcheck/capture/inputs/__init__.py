"""What a model is called with: given on the command line, read from files, or derived from the model."""
