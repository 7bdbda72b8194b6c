"""Two reports or many, held against each other: what is new, what is gone, and which upgrade to take."""
