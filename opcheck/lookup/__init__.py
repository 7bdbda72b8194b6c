"""Answers questions about operators from the op lists, release by release, without torch."""
