"""The smallest program for a finding, checked before it is given, and the text of an issue about it."""
