"""Logs that are damaged, or that no Mac printed, for opcheck observe."""

from __future__ import annotations

from pathlib import Path

import yaml
from hypothesis import strategies as st

from tests.fuzz.documents import NASTY, TEXTS, bytes_mutated
from tests.fuzz.effort import fuzzed
from tests.fuzz.trial import Trial

CORPUS = Path(__file__).parents[1] / "device" / "observe" / "corpus"
PRINTED = [
    entry["printed"].encode()
    for path in sorted(CORPUS.glob("*.yaml"))
    for entry in yaml.safe_load(path.read_text())["entries"]
]
#: What PyTorch, Metal and CI services print, with a hole where the rest comes from elsewhere.
TEMPLATES = (
    "UserWarning: The operator '{0}' is not currently supported on the MPS backend and will fall back to run on the CPU.",
    "NotImplementedError: The operator '{0}' is not currently implemented for the MPS device.",
    "{0}:12: UserWarning: The operator 'aten::nonzero' is not currently supported on the MPS backend",
    '  File "{0}", line {1}, in forward\n    x = y\nRuntimeError: {0}',
    "torch=={0}",
    "PyTorch version: {0}\nOS: macOS {1} (arm64)",
    "2024-01-01T00:00:{1}Z {0}",
    "##[group]{0}\n::error file={0}::{1}",
    "RuntimeError: MPS backend out of memory (MPS allocated: {1} GB, other allocations: {0} MB, max allowed: 9.07 GB).",
    "TypeError: Cannot convert a MPS Tensor to {0} dtype as the MPS framework doesn't support {0}.",
    "Dropping the CPU Fallback {0} : {1}",
    "aten::{0} CPU Fallback  {1} ms  {1} MB",
    "-:27:11: error: {0}\nfailed assertion `{1}'",
)
LINES = st.one_of(
    st.builds(lambda text, *holes: text.format(*holes), st.sampled_from(TEMPLATES), TEXTS, TEXTS),
    st.sampled_from(NASTY),
    st.sampled_from([text.decode() for text in PRINTED]),
)
LOGS = st.one_of(
    bytes_mutated(PRINTED),
    st.lists(LINES, max_size=12).map(lambda lines: "\n".join(lines).encode("utf-8", errors="surrogatepass")),
    st.binary(max_size=200),
)
ASKED = ("text", "json", "yaml", "sarif", "junit", "github", "gitlab", "csv", "jsonl", "markdown", "html")


@fuzzed(st.tuples(LOGS, st.sampled_from(ASKED), st.booleans()), quick=80, long=8000)
def test_a_log_is_read(trial: Trial, content: tuple[bytes, str, bool]) -> None:
    log, name, piped = content
    if piped:
        trial(["observe", "-", "-f", name], {}, stdin=log)
    else:
        trial(["observe", "ci.log", "-f", name, "-v"], {"ci.log": log})
