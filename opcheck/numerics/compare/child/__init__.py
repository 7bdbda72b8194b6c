"""The comparison itself, in a child process, where torch is imported."""
