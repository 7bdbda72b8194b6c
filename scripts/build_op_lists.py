"""Build the op lists of releases.

python scripts/build_op_lists.py 2.13.0 torchvision==0.28.0 [WHEEL ...]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from opcheck.common.errors import OpcheckError
from opcheck.data.registrations import data_directory
from opcheck.data.wheels.archive import default_cache
from opcheck.data.wheels.builder import build
from opcheck.data.wheels.extension import build_extension, is_extension


def main() -> int:
    """Build each source in turn; 2 or 3 on the first that cannot be built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", help="2.13.0, torchvision==0.28.0, or a wheel file")
    parser.add_argument("--op-lists", type=Path, default=data_directory(), help="where to write")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels are kept")
    given = parser.parse_args()
    for source in given.sources:
        start = time.monotonic()
        try:
            built, changed = _build(source, given.op_lists, given.cache)
        except OpcheckError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        seconds = time.monotonic() - start
        print(f"{built} in {seconds:.1f} s: {', '.join(changed) or 'nothing changed'}")
    return 0


def _build(source: str, op_lists: Path, cache: Path) -> tuple[str, tuple[str, ...]]:
    """What was built, with its counts, and the files that changed."""
    if is_extension(source):
        made = build_extension(source, op_lists, cache)
        return f"{made.library} {made.release.version}: {made.release.counts}", made.changed
    done = build(source, op_lists, cache)
    return f"torch {done.release.torch}: {done.release.counts}", done.changed


if __name__ == "__main__":
    sys.exit(main())
