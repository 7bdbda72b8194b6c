"""The answers of the verbs as documents, one kind of answer a file."""
