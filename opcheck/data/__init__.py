"""The op lists: what each torch release registers for MPS, read, resolved and built."""
