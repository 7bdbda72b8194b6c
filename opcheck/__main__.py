"""``python -m opcheck``."""

import os
import sys

# python -m puts the working directory first: a msgspec.py there would run in place of the library.
_HERE = os.getcwd()  # noqa: PTH109  (pathlib is not imported yet, and may be such a file)
if sys.path[0] in {"", _HERE} and not __file__.startswith(os.path.join(_HERE, "opcheck", "")):  # noqa: PTH118
    del sys.path[0]

from opcheck.cli import main  # noqa: E402

main()
