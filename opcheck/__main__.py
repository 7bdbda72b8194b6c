"""``python -m opcheck``."""

from opcheck.cli import main

main()
