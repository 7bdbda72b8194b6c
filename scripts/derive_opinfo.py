"""Write what the repository keeps of the recordings: python -m scripts.derive_opinfo (no torch needed)."""

from __future__ import annotations

import sys

from opcheck.files import write_text
from opcheck.oplists.composites import FILE
from opcheck.oplists.opinfo import DIRECTORY
from opcheck.oplists.registrations import data_directory
from scripts.opinfo import derive, store


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
    text = derive.composites(recordings)
    write_text(place / FILE, text)
    print(f"{FILE}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
