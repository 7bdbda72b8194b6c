"""Whether MPS is handled is judged by the value and the branch: a fix of one line silences no other line."""

from __future__ import annotations

import random
import textwrap
from collections import Counter
from pathlib import Path

import pytest

from opcheck.common.python_source import lines_with_endings
from opcheck.source.edits import apply
from opcheck.source.engine import Filters, read, scan
from opcheck.source.fixing import fix
from tests.source.reading import TARGET, scan_text
from tests.source.test_fixing import PROGRAM, SAFE, THREE, UNSAFE

_CHOICE = "'cuda' if torch.cuda.is_available() else 'cpu'"
_FIXED = "'cuda' if torch.cuda.is_available() else 'mps' if torch.backends.mps.is_available() else 'cpu'"

#: Lines for CUDA alone, which no choice of a device on another line changes.
LEFT = {
    "a flag": "use_amp = device == 'cuda'",
    "a dtype": "dtype = torch.float16 if device == 'cuda' else torch.float32",
    "a branch": "if device == 'cuda':\n    model = torch.compile(model)",
    "a call": "with torch.autocast(device, enabled=device == 'cuda'):\n    f(x)",
    "a cast that is on for CUDA alone": ("with torch.autocast('cuda', enabled=torch.cuda.is_available()):\n    f(x)"),
    "a move": "if torch.cuda.is_available():\n    model = model.cuda()",
    "memory": "if torch.cuda.is_available():\n    torch.cuda.empty_cache()",
    "a flag of availability": "use = torch.cuda.is_available()",
    "another device": f"other = {_CHOICE}",
    "another device in a call": f"y = torch.zeros(2, device={_CHOICE})",
    "a branch below one for another value": (
        f"if torch.backends.mps.is_available():\n    print('mps')\nz = 1\nother = {_CHOICE}"
    ),
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_a_choice_that_knows_mps_silences_no_other_line(tmp_path: Path, text: str) -> None:
    plain = scan_text(tmp_path, text)
    assert plain
    handled = scan_text(tmp_path, f"device = {_FIXED}\n{text}")
    assert [(rule, line - 1) for rule, line in handled] == plain


#: The same value, or the same branch, has a case for MPS.
HANDLED = {
    "a chain": "if device == 'cuda':\n    h()\nelif device == 'mps':\n    g()",
    "else": "if torch.cuda.is_available():\n    torch.cuda.empty_cache()\nelse:\n    torch.mps.empty_cache()",
    "the statement after": (
        "if torch.cuda.is_available():\n    torch.cuda.empty_cache()\n"
        "if torch.backends.mps.is_available():\n    torch.mps.empty_cache()"
    ),
    "the name is bound again": f"d = {_CHOICE}\nif torch.backends.mps.is_available():\n    d = 'mps'",
    "the name is bound before": (
        "dtype = torch.float32\nif args.mps:\n    dtype = torch.float16\nif torch.cuda.is_available():\n"
        "    dtype = torch.bfloat16"
    ),
    "another return": (
        f"def f(args):\n    if args.gpu == 'mps':\n        return 'mps'\n    return {_CHOICE}"
    ),
    "a flag beside it": (
        "use_cuda = torch.cuda.is_available()\nuse_mps = torch.backends.mps.is_available()"
    ),
    "both in one condition": "if device in ('cuda', 'mps'):\n    h()",
    "or": "if x.is_cuda or x.device.type == 'mps':\n    h()",
    "inside of a branch": f"if args.mps:\n    pass\nelse:\n    d = {_CHOICE}",
}  # fmt: skip


@pytest.mark.parametrize("text", HANDLED.values(), ids=HANDLED)
def test_a_value_or_branch_with_a_case_for_mps_is_silent(tmp_path: Path, text: str) -> None:
    assert [rule for rule, _ in scan_text(tmp_path, text) if rule in {"OC222", "OC223"}] == []


# -- fixes of a part of a file ------------------------------------------------------------------------

_SNIPPETS = [before for before, _ in (*SAFE.values(), *UNSAFE.values())]
CORPUS = {
    "program": textwrap.dedent(PROGRAM),
    "three": THREE,
    "all": "import torch\n" + "\n".join(_SNIPPETS),
    "in functions": "import torch\n"
    + "\n".join(
        f"def f{number}(x, m, a, b, p):\n{textwrap.indent(text, '    ')}" for number, text in enumerate(_SNIPPETS)
    ),
    "left": "import torch\ndevice = 'cpu'\n" + "\n".join(LEFT.values()),
    "handled": "import torch\n" + "\n".join((*HANDLED.values(), *LEFT.values())),
}


def _findings(folder: Path) -> Counter[tuple[str, str]]:
    """The rule and the text of the line of each finding."""
    findings = scan([str(folder)], TARGET).findings
    places = [(finding.rule, finding.locations[0].location) for finding in findings]
    return Counter((rule, place.text) for rule, place in places if place)


@pytest.mark.parametrize("name", CORPUS)
def test_a_part_of_the_fixes_silences_nothing_else(tmp_path: Path, name: str) -> None:
    path, choose = tmp_path / "a.py", random.Random(name)  # noqa: S311  (no secret)
    text = CORPUS[name]
    path.write_text(text, encoding="utf-8")
    before = _findings(tmp_path)
    proposals = read([str(tmp_path)], TARGET, Filters()).found.proposals
    assert proposals
    subsets = [choose.sample(proposals, choose.randint(1, len(proposals))) for _ in range(10)]
    for subset in (*subsets, proposals):
        lines = lines_with_endings(text)
        after, applied = apply(lines, [each.fix.edits for each in subset])
        path.write_text(after, encoding="utf-8")
        changed = Counter((subset[number].rule, subset[number].text.strip()) for number in applied)
        # A finding on a line that an edit changes is compared by its line no more.
        left = Counter(line.strip()[:200] for line in after.splitlines())
        expected = {key: count for key, count in (before - changed).items() if left[key[1]]}
        found = _findings(tmp_path)
        missing = {key for key, count in expected.items() if found[key] < min(count, left[key[1]])}
        assert not missing, f"after {sorted(changed)}"


def test_a_finding_that_only_a_fix_of_another_line_silences_is_reported_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No rule is silenced so by the fixes of today: a rule that looks at the whole file stands for one.
    path = tmp_path / "a.py"
    path.write_text(f"import torch\nd = {_CHOICE}\nuse = d == 'cuda'\n", encoding="utf-8")
    module = "opcheck.source.rules.cuda_branch.handles_mps"
    monkeypatch.setattr(module, lambda _node, scanned: "'mps'" in scanned.lines[1])
    result = fix([str(path)], TARGET)
    path.write_bytes(result.changes[0].contents()[1])
    assert scan([str(path)], TARGET).findings == ()
    (left,) = scan([str(path)], TARGET, silenced=result.silenced).findings
    place = left.locations[0].location
    assert place is not None
    assert (left.rule, place.line) == ("OC223", 3)
    assert left.message.endswith("a fix of another line hides this")
