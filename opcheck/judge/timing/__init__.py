"""How long a run takes on a Mac: ``workload.py`` reduces its calls, ``estimate.py`` makes intervals of them."""
