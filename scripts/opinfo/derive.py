"""Write what the repository keeps of the recordings: op_lists/opinfo/<line>.json and op_lists/composites.json.

    python -m scripts.opinfo.derive

Both are one OpInfo, API or overload a line, sorted, so that the same recordings give the same bytes.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data.composites import SAMPLED
from opcheck.data.files import read_releases
from opcheck.data.registrations import data_directory
from scripts import by_release
from scripts.opinfo import store
from scripts.opinfo.earlier import EarlierBody, earlier_bodies
from scripts.opinfo.evaluation import DIRECTORY, LETTERS
from scripts.opinfo.store import MACOS, PASSES, SIMULATED_MACOS, Info, Recording

SCHEMA = 1
_OTHER_MACOS = tuple(macos for macos in MACOS if macos != SIMULATED_MACOS)


def evidence(recording: Recording) -> str:
    """The text of op_lists/opinfo/<line>.json."""
    reached = {name: _reached(info) for name, info in recording.opinfos.items()}
    used = Counter(op for kinds in reached.values() for ops in kinds.values() for op in ops)
    # The most frequent first: their numbers are the short ones.
    overloads = sorted(used, key=lambda op: (-used[op], op))
    number = {op: index for index, op in enumerate(overloads)}
    head = {
        "schema": SCHEMA,
        "torch": recording.torch,
        "macos": SIMULATED_MACOS,
        "samples": recording.samples,
        "overloads": overloads,
    }
    rows = {name: _row(info, reached[name], number) for name, info in sorted(recording.opinfos.items())}
    return by_release.lines(head, {"opinfos": rows})


def _row(info: Info, reached: Mapping[str, set[str]], number: Mapping[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for kind in PASSES:
        here = info.ci[SIMULATED_MACOS][kind]
        result = {"ran": _letters(here)} | _states(here)
        for macos in _OTHER_MACOS:
            there = info.ci[macos][kind]
            if there != here:
                result[f"macos {macos}"] = {"ran": _letters(there)} | _states(there)
        failed = [dtype for dtype, run in info.runs[kind].items() if run.failures]
        if reached[kind]:
            result["calls"] = sorted(number[op] for op in reached[kind])
        if failed:
            result["failed"] = _letters(failed)
            result["failure"] = min(info.runs[kind][dtype].failures[0] for dtype in failed)[:80]
        if result["ran"]:
            row[kind] = result
    return row


def _states(states: Mapping[str, str]) -> dict[str, Any]:
    by_state = {
        state: _letters(dtype for dtype, value in states.items() if value == state) for state in ("xfail", "skip")
    }
    return {state: letters for state, letters in by_state.items() if letters}


def _letters(dtypes: Iterable[str]) -> str:
    held = set(dtypes)
    return "".join(letter for letter, dtype in LETTERS.items() if dtype in held)


def _reached(info: Info) -> dict[str, set[str]]:
    """By pass: the overloads that decide; of gradient, those that forward does not reach."""
    results: dict[str, set[str]] = {}
    for kind in PASSES:
        results[kind] = {
            op
            for run in info.runs[kind].values()
            for call in run.calls
            for op in (call.inner if call.inner is not None else (call.op,))
        }
    results["gradient"] -= results["forward"]
    return results


def composites(recordings: Sequence[Recording], read: Mapping[str, str], earlier: Sequence[EarlierBody]) -> str:
    """The text of op_lists/composites.json.  An entry stands where the value changes.

    Args:
        recordings: one a release line.
        read: release line -> release, of the wheels that the earlier bodies were read from.
        earlier: the bodies of releases before the oldest recording.
    """
    torch = {line: each.torch for each in recordings for line in each.composites}
    bodies = {
        line: {name: body.calls for name, body in seen.items()}
        for each in recordings
        for line, seen in each.composites.items()
    }
    tables = by_release.rows(bodies)
    for name, rows in tables.items():
        older = [entry for entry in earlier if entry.op == name]
        tables[name] = [*_before(older, rows[0]), *rows] if older else rows
    head = {
        "schema": SCHEMA,
        "torch": {line: torch[line] for line in sorted(torch, key=Version.parse)},
        "read": dict(sorted(read.items(), key=lambda item: Version.parse(item[0]))),
    }
    return by_release.lines(head, {"apis": _apis(recordings), "composites": tables})


def _before(older: Iterable[EarlierBody], recorded: Sequence[Any]) -> list[list[Any]]:
    """The rows in front of the oldest recorded one, which stands again where it holds before its own line."""
    rows: list[list[Any]] = []
    for body in sorted(older, key=lambda item: Version.parse(item.since)):
        if rows and rows[-1][0] == body.since:
            rows.pop()
        rows.append([body.since, sorted(body.always), sorted(body.sometimes)])
        if body.until != recorded[0]:
            rows.append([body.until, *recorded[1:]])
    return rows


def _apis(recordings: Sequence[Recording]) -> dict[str, list[str]]:
    """API name -> the overloads that its call enters, in any release."""
    results: dict[str, set[str]] = {}
    for recording in recordings:
        for info in recording.opinfos.values():
            # Names such as ``__radd__`` are methods; they are found by the operator's own name.
            if not info.api.startswith("_"):
                results.setdefault(info.api, set()).update(_own(info))
    return {name: sorted(ops) for name, ops in sorted(results.items()) if ops}


def _own(info: Info) -> set[str]:
    """Of the overloads entered, those of the API's own name; all, where none is."""
    last = info.api.rpartition(".")[2]
    bases = {last, info.api.replace(".", "_"), f"{last}_"}
    own = {op for op in info.enters if op.partition("::")[2].partition(".")[0] in bases}
    return own or set(info.enters)


def main() -> int:
    """Derive every file from the recordings on this machine; 1 if there is none."""
    recordings = [store.read(line) for line in store.recorded()]
    if not recordings:
        print(f"no recordings in {store.cache()}: python -m scripts.run_opinfo_all", file=sys.stderr)
        return 1
    place = data_directory()
    (place / DIRECTORY).mkdir(exist_ok=True)
    for recording in recordings:
        text = evidence(recording)
        write_text(place / DIRECTORY / f"{recording.line}.json", text)
        print(f"{DIRECTORY}/{recording.line}.json: {len(text)} bytes")
    oldest = min(Version.parse(recording.line) for recording in recordings)
    releases, _ = read_releases(place / "releases.yaml")
    read = {release.line: release.torch for release in releases if Version.parse(release.line) < oldest}
    text = composites(recordings, read, earlier_bodies(place))
    write_text(place / SAMPLED.name, text)
    print(f"{SAMPLED.name}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
