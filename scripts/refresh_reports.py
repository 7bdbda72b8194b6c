"""Write the sample reports of the zoo's models and their index.

    python scripts/refresh_reports.py [MODEL ...]

Run from the top of the repository: the reports name files relative to it.
"""

import sys
from collections.abc import Mapping

from tabulate import tabulate

from opcheck.capture.request import DEFAULT_OPTIMIZER, CaptureRequest
from opcheck.common.files import write_text
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.model.records import Report
from opcheck.orchestrator import audit
from opcheck.render import render
from scripts.pages import ROOT, page_text

REPORTS = ROOT / "reports"
SUFFIXES = {"yaml": ".yaml", "markdown": ".md"}

#: Where the reports are about: a release that the development environment has installed.
TORCH, MACOS = "2.13", "15.0"


#: Reports of training steps: name -> the model of the zoo, its optimizer, its autocast.
TRAINED = {
    "resnet50_train": ("resnet50", "sgd:momentum=0.9,nesterov=true", ""),
    "wav2vec2_ctc_train": ("wav2vec2_ctc", "adamw", "float16"),
}


def main(models: list[str]) -> None:
    """Write the reports of the named models, or of all with the index."""
    reports = {}
    for model in models or _models():
        reports[model] = audited(model)
        print(f"{model}: {reports[model].headline}", file=sys.stderr)
        for name, suffix in SUFFIXES.items():
            write_text(REPORTS / f"{model}{suffix}", render(reports[model], name))
    if not models:
        write_text(REPORTS / "README.md", _index(reports))


def audited(model: str) -> Report:
    """The report of one model of the zoo, or of a training step of it."""
    name, optimizer, autocast = TRAINED.get(model, (model, DEFAULT_OPTIMIZER, ""))
    request = CaptureRequest(
        model=f"examples/models/zoo.py:{name}",
        target=Target(torch=Version.parse(TORCH), macos=Version.parse(MACOS)),
        mode="train" if model in TRAINED else "inference",
        optimizer=optimizer,
        autocast=autocast,
    )
    return audit(request, load())


def _index(reports: Mapping[str, Report]) -> str:
    rows = [
        {
            "model": f"[{model}]({model}.md) ([YAML]({model}.yaml))",
            "what it does on a Mac": report.headline,
            "calls": report.totals["calls"],
            "operators": report.totals["operators"],
            "native": report.totals["native"],
            "on the CPU": sum(number for name, number in report.totals.items() if name.startswith("fallback")),
            "unsupported": report.totals["unsupported"],
            "unknown": report.totals["unknown"],
        }
        for model, report in reports.items()
    ]
    return page_text("reports", torch=TORCH, macos=MACOS, table=tabulate(rows, headers="keys", tablefmt="github"))


def _models() -> list[str]:
    sys.path.insert(0, str(ROOT))
    from examples.models.zoo import ZOO  # noqa: PLC0415 - importing the zoo imports torch

    return [*ZOO, *TRAINED]


if __name__ == "__main__":
    main(sys.argv[1:])
