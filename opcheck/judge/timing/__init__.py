"""How long a run takes on a Mac: ``workload.py`` reduces its calls, ``intervals.py`` makes intervals of them."""
