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

import signal

# Ctrl-C ends the imports as the signal does, without a traceback; opcheck.cli handles it from then on.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from opcheck.cli import main

if __name__ == "__main__":
    main()
