"""Compares two or more reports: what is new, what is fixed, and which upgrade to take."""
