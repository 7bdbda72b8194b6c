"""Write what the repository keeps of the recordings: python -m scripts.derive_opinfo (no torch needed)."""

from __future__ import annotations

import sys

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data.composites import SAMPLED
from opcheck.data.files import read_releases
from opcheck.data.registrations import data_directory
from scripts.opinfo import derive, store
from scripts.opinfo.earlier import earlier_bodies
from scripts.opinfo.evaluation import DIRECTORY


def main() -> int:
    """Derive every file from the recordings on this machine; 1 if there is none."""
    recordings = [store.read(line) for line in store.recorded()]
    if not recordings:
        print(
            f"no recordings in {store.cache()}: python -m scripts.run_opinfo_all", file=sys.stderr
        )
        return 1
    place = data_directory()
    (place / DIRECTORY).mkdir(exist_ok=True)
    for recording in recordings:
        text = derive.evidence(recording)
        write_text(place / DIRECTORY / f"{recording.line}.json", text)
        print(f"{DIRECTORY}/{recording.line}.json: {len(text)} bytes")
    oldest = min(Version.parse(recording.line) for recording in recordings)
    releases, _ = read_releases(place / "releases.yaml")
    read = {
        release.line: release.torch for release in releases if Version.parse(release.line) < oldest
    }
    text = derive.composites(recordings, read, earlier_bodies(place))
    write_text(place / SAMPLED.name, text)
    print(f"{SAMPLED.name}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
