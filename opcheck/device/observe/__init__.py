"""What a real Mac did: the texts that it prints, and a recorder in the process of a program."""
