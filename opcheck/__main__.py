"""``python -m opcheck``."""

import os
import sys

# python -m puts the working directory first: a msgspec.py there would run in place of the library.  pathlib is not
# imported yet, and may be such a file.
try:
    _HERE = os.path.join(os.getcwd(), "")
except OSError:  # it is gone, and nothing is imported from it
    _HERE = ""
if os.path.join(sys.path[0], "") == _HERE and not __file__.startswith(_HERE):
    del sys.path[0]

from opcheck.cli import main

main()
