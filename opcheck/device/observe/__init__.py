"""What a real Mac did: the texts that it prints, a recorder in the process, and the check of a prediction against both."""
