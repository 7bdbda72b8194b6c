"""Time reading the routes of a release beside reading its registrations.

    python -m scripts.bench_routes [RELEASE]

Prints the seconds of both and their ratio; a release takes at most 3 minutes on two cores.
"""

from __future__ import annotations

import sys
import time

from opcheck.data.registrations import load
from opcheck.data.wheels.archive import default_cache, obtain, read_archive
from scripts.read_routes import build

MOST_SECONDS = 180


def main() -> int:
    """Read a release; 1 where it takes too long."""
    release = sys.argv[1] if len(sys.argv) > 1 else load().releases[-1].torch
    start = time.perf_counter()
    read_archive(obtain(release, default_cache()))
    archive = time.perf_counter() - start
    start = time.perf_counter()
    found = build(release, release.rpartition(".")[0], default_cache(), load())
    seconds = time.perf_counter() - start
    print(
        f"torch {release}: {len(found)} overloads in {seconds:.0f} s, {seconds / archive:.1f} times the reading of "
        f"the wheel's registrations ({archive:.0f} s)"
    )
    return int(seconds > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
