"""How much memory a run takes on MPS, what holds it, and which Macs it fits: an estimate."""
