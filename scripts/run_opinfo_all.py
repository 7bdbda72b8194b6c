"""Record every release that PyTorch's lists exist for: install it, record, delete the environment, one at a time.

    python -m scripts.run_opinfo_all [RELEASE ...]

Each Linux build is a few GB and takes some minutes; the recordings are kept in ``~/.cache/opcheck/opinfo``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from opcheck.common.errors import OpcheckError
from opcheck.worker.environments import Wanted, interpreter

ROOT = Path(__file__).parents[1]

#: The releases whose wheel holds common_mps.py, the last patch of each line.
RELEASES = ("2.13.0", "2.9.1", "2.15.0", "2.8.0", "2.10.0", "2.11.0", "2.12.1", "2.14.1")

#: Releases older than the lists: their composites are followed with the oldest torch that installs here.
OLDER = ("1.13", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7")


def main() -> int:
    """Record each release in turn; 1 if one could not be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES, help="such as 2.9.1")
    parser.add_argument("--samples", default="12")
    given = parser.parse_args()
    failed = False
    for release in given.releases:
        start = time.monotonic()
        try:
            record(release, given.samples)
        except (OpcheckError, subprocess.CalledProcessError) as error:
            print(f"torch {release}: {error}", file=sys.stderr)
            failed = True
        print(f"torch {release}: {time.monotonic() - start:.0f} s in all", flush=True)
    derived = subprocess.run([sys.executable, "-m", "scripts.opinfo.derive"], cwd=ROOT, check=False)
    return 1 if failed or derived.returncode else 0


def record(release: str, samples: str) -> None:
    """Install one release in an environment of its own and record it there.

    Raises:
        CaptureError: it could not be installed.
        subprocess.CalledProcessError: it could not be recorded.
    """
    python = interpreter(Wanted(torch=release, libraries=("expecttest", "scipy")))
    older = ["--older", *OLDER] if release == "2.8.0" else []
    try:
        subprocess.run(
            [python, "-m", "scripts.opinfo_lists", "--samples", samples, *older],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    finally:
        shutil.rmtree(Path(python).parents[1])


if __name__ == "__main__":
    sys.exit(main())
