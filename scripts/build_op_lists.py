"""Build the op lists of releases: python scripts/build_op_lists.py 2.13.0 [WHEEL ...]."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from opcheck.errors import OpcheckError
from opcheck.oplists.registrations import data_directory
from opcheck.oplists.wheel import build, default_cache


def main() -> int:
    """Build each source in turn; 2 or 3 on the first that cannot be built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", help="a release such as 2.13.0, or a wheel file")
    parser.add_argument("--op-lists", type=Path, default=data_directory(), help="where to write")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are kept")
    given = parser.parse_args()
    for source in given.sources:
        start = time.monotonic()
        try:
            summary = build(source, given.op_lists, given.cache)
        except OpcheckError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        release, seconds = summary.release, time.monotonic() - start
        changed = ", ".join(summary.changed) or "nothing changed"
        print(f"torch {release.torch}: {release.counts} in {seconds:.1f} s: {changed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
