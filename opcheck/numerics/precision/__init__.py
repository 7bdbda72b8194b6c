"""Can float64 go?  A model's run on this machine's CPU, each call beside the same call in float64."""
