"""Time ``scripts.read_routes``, in seconds of the processor: opening the wheel of a release, and following its kernels.

The last column divides the second by the first, so that runs on different machines can be compared.  A release may
take 180 seconds: the exit code is 1 where one takes more.  Wheels that the cache lacks are downloaded.

    python -m scripts.bench_routes [RELEASE ...]
"""

from __future__ import annotations

import sys
import time

from opcheck.data.registrations import load
from opcheck.data.wheels.archive import default_cache
from scripts.read_routes import build
from scripts.wheels.library import open_library

MOST_SECONDS = 180


def measure(release: str) -> tuple[float, float, int]:
    """Return the seconds to open a release's library, those to read its routes, and the number of overloads.

    Raises:
        OpListError: the wheel cannot be had, or is damaged.
    """
    lists, cache = load(), default_cache()
    start = time.process_time()
    with open_library(release, cache):
        opened = time.process_time() - start
    overloads = build(release, ".".join(release.split(".")[:2]), cache, lists)
    return opened, time.process_time() - start - 2 * opened, len(overloads)


def main() -> int:
    """Print a row a release; without names the newest and the oldest."""
    releases = load().releases
    slow = False
    print("torch    opens s  follows s  overloads  ratio")
    for release in sys.argv[1:] or [releases[-1].torch, releases[0].torch]:
        opened, followed, overloads = measure(release)
        slow |= opened + followed > MOST_SECONDS
        ratio = followed / opened
        print(
            f"{release:<8} {opened:7.1f} {followed:10.1f} {overloads:10d} {ratio:6.1f}", flush=True
        )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
