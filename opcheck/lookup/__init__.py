"""Asking the op lists: what a release does with an operator, release by release, without torch."""
