"""Shows whether float64 can go: runs a model on this machine's CPU, each call next to the same call in float64."""
