"""Write reports/complex.md: complex numbers, transforms and float64 of real models on five targets.

Run from the top of the repository: the page names files relative to it.
"""

import sys
from collections.abc import Iterator

from tabulate import tabulate

from opcheck.capture.request import CaptureRequest
from opcheck.common.files import write_text
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.model.records import Finding, Report
from opcheck.orchestrator import audit
from scripts.pages import ROOT, page_text

sys.path.insert(0, str(ROOT))

from examples.models.spectral import MODELS

PAGE = ROOT / "reports" / "complex.md"
VERSIONS = (("2.1", "13.0"), ("2.4", "13.0"), ("2.4", "14.0"), ("2.13", "15.0"), ("2.15", "15.0"))
TARGETS = [Target(torch=Version.parse(torch), macos=Version.parse(macos)) for torch, macos in VERSIONS]


def _page() -> Iterator[str]:
    reports = {name: {target: _audited(name, target) for target in TARGETS} for name in sorted(MODELS)}
    yield page_text("spectral")
    rows = [[name, *(entry.headline for entry in entry.values())] for name, entry in reports.items()]
    yield tabulate(rows, headers=["model", *map(str, TARGETS)], tablefmt="github")
    for name, item in reports.items():
        yield from ("", f"## {name}")
        for target, report in item.items():
            findings = [finding for finding in report.findings if finding.severity != "note"]
            if findings:
                yield from ("", f"On {target}:", "")
                yield from map(_line, findings)


def _audited(name: str, target: Target) -> Report:
    print(f"{name} on {target}", file=sys.stderr)
    return audit(CaptureRequest(model=f"examples/models/spectral.py:{name}", target=target), load())


def _line(finding: Finding) -> str:
    place = finding.locations[0].location if finding.locations else None
    where = f" `{place.text}`" if place and place.text else ""
    instead = f" Instead: `{finding.remedy}`" if finding.remedy and "\n" not in finding.remedy else ""
    return f"- **{finding.rule}** {finding.message}.{where} {finding.hint}.{instead}"


if __name__ == "__main__":
    write_text(PAGE, "\n".join(_page()) + "\n")
