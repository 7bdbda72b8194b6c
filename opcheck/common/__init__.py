"""Errors, names, versions, files and texts: what every room uses."""
