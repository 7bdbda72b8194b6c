"""How long a run takes on a Mac: ``workload.py`` reduces its calls, ``estimates.py`` makes intervals of them."""
