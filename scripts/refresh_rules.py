"""Write docs/rules/README.md, the index of the rules' pages."""

from opcheck.common.catalogue import groups, pages_folder
from opcheck.common.files import write_text
from scripts.pages import narrow_table


def index() -> str:
    """Return the list of all rules as Markdown, with links to the pages beside it."""
    lines = ["# Rules", "", "`opcheck explain CODE` prints a page. scripts/refresh_rules.py writes this index."]
    for title, rules in groups().items():
        rows = [(f"[{rule.id}]({rule.id}.md)", rule.severity, rule.title) for rule in rules]
        lines += ["", f"## {title}", "", narrow_table(("code", "severity", "what"), rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_text(pages_folder() / "README.md", index())
