"""Lays out the help of verbs: real examples first, then the options in groups.  Imports only click."""

from __future__ import annotations

from collections.abc import Mapping

import click

#: By verb: a command line, and what it does.  tests/cli/test_helps.py parses each.
EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "op": (
        ("opcheck op torch.linalg.svd", "every release, the newest first to count"),
        ("opcheck op nn.LSTM --torch 2.9 --macos 14", "one target; a module lists what it calls"),
        ("opcheck op sdpa --dtype bf16 --json", "for a script"),
    ),
    "history": (
        ("opcheck history cumsum", "what changed it, release by release"),
        ("opcheck history nn.GroupNorm --macos 14", "on an older macOS"),
        ("opcheck history F.grid_sample -f md -o history.md", "as Markdown"),
    ),
    "matrix": (
        ("opcheck matrix -o coverage.md", "the newest release as Markdown"),
        ("opcheck matrix -f html -o coverage.html", "all releases on one page with a search"),
        ("opcheck matrix --torch 2.9 --macos 14 -o coverage.csv", "for a spreadsheet"),
    ),
    "explain": (
        ("opcheck explain OC102", "what the finding means, and what to do"),
        ("opcheck explain", "all findings, one line each"),
        ("opcheck explain schema", "the JSON schema of a report"),
    ),
    "audit": (
        ("opcheck audit torchvision:resnet18", "a library's model; no weights are needed"),
        ("opcheck audit model.py:Net --input 1x3x224x224 --torch 2.9", "your own, on a release"),
        ("opcheck audit transformers:BertModel --mode train -o report.html", "a training step"),
    ),
    "compile": (
        ("opcheck compile model.py:Net", "eager, aot_eager, Inductor: what works"),
        ("opcheck compile transformers:BertModel --config num_hidden_layers=2", "a small one"),
        ("opcheck compile timm:resnet18 --check-metal", "also the Metal kernels themselves"),
    ),
    "scan": (
        ("opcheck scan src", "files below a folder; .gitignore counts"),
        ("opcheck scan train.py --select OC201", "one rule"),
        ("opcheck scan . -f github", "annotations of a pull request"),
    ),
    "upgrade": (
        ("opcheck upgrade torchvision:raft_small", "which release removes the findings"),
        ("opcheck upgrade model.py:Net --torch 2.6 --macos 14", "from where you are"),
        ("opcheck upgrade timm:resnet50 --json", "for a script"),
    ),
    "diff": (
        ("opcheck diff 2.9 2.15", "two releases, operator by operator"),
        ("opcheck diff old.json new.json", "two reports that opcheck audit wrote"),
        ("opcheck diff model.py:Net --from torch=2.9,macos=14 --to torch=2.15", "two targets"),
    ),
    "repro": (
        ("opcheck repro report.json OC101", "from a saved report"),
        ("opcheck repro model.py:Net OC101", "from a model"),
        ("opcheck repro report.json aten::_ctc_loss -o bug.py", "the program of one operator"),
    ),
    "issue": (
        ("opcheck issue report.json OC101", "the text, ready to paste"),
        ("opcheck issue model.py:Net OC101", "from a model"),
        ("opcheck issue report.json OC101 -o issue.md", "into a file"),
    ),
    "gate": (
        ("opcheck init", "write the table that the gate reads"),
        ("opcheck gate", "every configured model on every target"),
        (
            "opcheck gate --baseline opcheck-baseline.yaml -f github",
            "in CI: only what is new fails",
        ),
    ),
    "sweep": (
        (
            "opcheck sweep torchvision:resnet18 timm:vit_tiny_patch16_224 --folder sweep",
            "two models",
        ),
        ('opcheck sweep "transformers:Bert*" --torch ">=2.9" --folder sweep', "a pattern"),
        ("opcheck sweep report sweep", "what it came to"),
    ),
    "run": (
        ("opcheck run train.py --epochs 1", "the program as it is, on an emulated Mac"),
        ("opcheck run --torch 2.9 --macos 14 -o run.html train.py", "on an older one"),
        ("opcheck run -m pytest tests", "a module, such as a test suite"),
    ),
    "observe": (
        ("opcheck observe mac.log", "what a Mac printed"),
        ("opcheck observe ci.log --fail-on unsupported", "fail where something raised"),
        ("opcheck observe - -f json", "from stdin"),
    ),
    "verify": (
        ("opcheck verify report.json run.json", "a prediction beside what a Mac did"),
        ("opcheck verify report.json mac.log", "beside a log"),
        ("opcheck verify report.json run.json --propose statements.yaml", "what the lists lack"),
    ),
    "doctor": (
        ("opcheck doctor", "this machine"),
        ("opcheck doctor --gather > facts.json", "the facts of a Mac, for elsewhere"),
        ("opcheck doctor --from facts.json", "look at them"),
    ),
    "compare": (
        ("opcheck compare torchvision:resnet18 --device mps", "on a Mac"),
        ("opcheck compare model.py:Net --device cuda --mode train", "with gradients"),
        ("opcheck compare model.py:Net --device mps --time -o compare.html", "with times"),
    ),
    "probe": (
        ("opcheck probe --device mps -o evidence.yaml", "all operators, as evidence"),
        ("opcheck probe --device mps --op 'linalg*'", "some"),
        ("opcheck probe --device cuda --dtype fp16", "one dtype"),
    ),
    "kernels": (
        ("opcheck kernels list --torch 2.15 'softmax*'", "the kernels of a release"),
        ("opcheck kernels diff 2.14 2.15", "what is new, gone or of other code"),
        ("opcheck kernels test 'softmax*'", "run them on this CPU"),
    ),
    "lists": (
        ("opcheck lists", "the releases, their counts and age"),
        ("opcheck lists lint", "check the curated statements"),
        ("opcheck lists build 2.15.0", "read a release's wheel"),
    ),
    "site": (
        ("opcheck site build -o site", "a page for every operator and release"),
        ("opcheck site build -o site --sweep sweep", "with a sweep's models"),
        ("opcheck matrix -f html -o coverage.html", "one page alone"),
    ),
    "init": (
        ("opcheck init", "a commented [tool.opcheck] in pyproject.toml"),
        ("opcheck init --model model.py:Net --workflow", "with a model, and a GitHub workflow"),
        ("opcheck init --print", "show it, and write nothing"),
    ),
}

#: The titles of the groups of options, by the record that declares them, in the order of the help.
TITLES = {
    "TargetOptions": "Target",
    "RunOptions": "Targets and run",
    "CaptureOptions": "Model and how it runs",
    "SweepOptions": "Sweep",
    "": "Options",
    "Policy": "What fails",
    "OutputOptions": "Output",
    "ReportOptions": "Output",
    "ProgressOptions": "Output",
}
#: Columns of the help, however wide the terminal is.
WIDTH = 100
#: Columns of a flag with its value: what is longer stands on a line of its own.
_FLAG_COLUMNS = 30


class Help(click.Command):
    """A click command whose help begins with examples and groups its options."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, purpose, examples, groups of options, and the notes."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        examples = EXAMPLES.get(ctx.command_path.removeprefix("opcheck ").strip(), ())
        if examples:
            with formatter.section("Examples"):
                for line, purpose in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}  # {purpose}\n")
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the titles of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in TITLES.values()}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = TITLES.get(getattr(parameter, "group", ""), TITLES[""])
                groups[title].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=_FLAG_COLUMNS, col_spacing=1)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


class HelpGroup(Help, click.Group):
    """A click group with the same help."""
