"""Writes pages as files: HTML by Jinja2, the record of each page as JSON, and the index of the search box."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.resources import files as package

import msgspec
from jinja2 import Environment

from opcheck.common.names import DTYPE_ALIASES
from opcheck.common.sanitize import show_hidden
from opcheck.data import composites
from opcheck.data.registrations import OpLists, load
from opcheck.features.site import addresses, page_records
from opcheck.features.site.filters import filters
from opcheck.features.site.page_records import PAGES, SitePage
from opcheck.lookup.aliases import aliases
from opcheck.lookup.answer_words import WORDS
from opcheck.lookup.plain_call import BOOKKEEPING, COMMON_DTYPES
from opcheck.render import html
from opcheck.render.coverage_plot import plot

#: The menu: the page, its name, and the pages below it.
_NAVIGATION: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("Operators", "operators", (page_records.Operators, page_records.OperatorPage)),
    ("Models", "models", (page_records.Models, page_records.ModelPage)),
    ("Releases", "releases", (page_records.Releases, page_records.ReleasePage)),
    ("Advisories", "advisories", ()),
    ("Limits", "limitations", ()),
    ("Findings", "rules", (page_records.Rules, page_records.Rule)),
)


def files(
    pages: Collection[SitePage], progress: Callable[[str], None] | None = None
) -> dict[str, str]:
    """Return the texts of all files of the site, by their paths.

    Args:
        pages: the front page first.
        progress: receives the path of each page as it is written.

    Raises:
        OSError: a template is not in the package.
    """
    home = next(page for page in pages if isinstance(page, page_records.Home))
    templates = html.environment().overlay()
    folder = package("opcheck.render") / "template" / "site"
    files = {
        ".nojekyll": "",  # GitHub Pages would leave files out whose names begin with _
        "style.css": (folder / "style.css").read_text(encoding="utf-8"),
        "search.js": (folder / "search.js").read_text(encoding="utf-8"),
        "list.js": (folder / "list.js").read_text(encoding="utf-8"),
        "search-index.js": search_index(pages),
        "schema.json": schema(),
        "coverage.svg": plot(home.counts, home.macos),
    }
    own = {page.address for page in pages}
    for page in pages:
        path = page.address
        if progress is not None:
            progress(path)
        templates.filters = {**html.environment().filters, **filters(path, own)}
        files[f"{path}.html"] = _html(templates, page, path, home, own)
        files[f"{path}.json"] = f"{msgspec.json.encode(page).decode()}\n"
    return files


def schema() -> str:
    """Return the JSON schema of the pages' JSON: a record for each sort of page."""
    references, components = msgspec.json.schema_components(PAGES, ref_template="#/$defs/{name}")
    for kind in PAGES:
        default = next(f.default for f in msgspec.structs.fields(kind) if f.name == "schema")
        components[kind.__name__]["properties"]["schema"] = {"const": default}
        components[kind.__name__]["required"] = ["schema", *components[kind.__name__]["required"]]
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The JSON of each page of a site of opcheck",
        "anyOf": references,
        "$defs": components,
    }
    return f"{json.dumps(content, indent=1)}\n"


def _html(
    templates: Environment, page: SitePage, path: str, home: page_records.Home, own: Collection[str]
) -> str:
    _, title, description = page.page_head
    html = templates.get_template(
        f"site/{type(page).__name__.removesuffix('Page').lower()}.html"
    ).render(
        page=page,
        home=home,
        home_page=isinstance(page, page_records.Home),
        title=title,
        description=description,
        top=addresses.to_top(path),
        json=f"{path.rpartition('/')[2]}.json",
        nav=list(_navigation(page, path, own)),
        lines=tuple(home.counts),
    )
    # A model's name and its messages are other people's text.
    return show_hidden(html)


def _navigation(page: SitePage, path: str, own: Collection[str]) -> Iterable[tuple[str, str, str]]:
    """Name, address, and ``page`` or ``true`` where the reader is there or below it."""
    for name, address, below in _NAVIGATION:
        if address in own:
            here = "page" if path == address else "true" if isinstance(page, below) else ""
            yield name, address, here


#: The kinds of pages in the search, in the order of equally good matches.
_KINDS = ("operator", "model", "release", "rule", "remedy")


def search_index(pages: Iterable[SitePage]) -> str:
    """Return the index as a script, ``opcheckIndex(...)``: a page that is opened as a file cannot fetch JSON.

    Each entry is [kind, name, address, the text next to it, other names, the place of its dtypes]: the states of
    dtypes that differ are shared by many operators.
    """
    lists = load()
    others = _other_names(lists)
    differing = html.Pool()
    entries = [entry for page in pages if (entry := _entry(page, others, differing))]
    dtypes = {name: name for name in COMMON_DTYPES} | {
        alias: name for alias, name in DTYPE_ALIASES.items() if name in COMMON_DTYPES
    }
    sets = [json.loads(states) for states in differing.numbers]
    text = json.dumps([_KINDS, dtypes, sets, entries], ensure_ascii=True, separators=(",", ":"))
    return f"opcheckIndex({text});\n"


def _other_names(lists: OpLists) -> Mapping[str, Sequence[str]]:
    """Return the other names of operators: aliases, and what in Python calls them with others."""
    line = lists.releases[-1].line
    names = {op: [*known] for op, known in aliases(lists.names(), line).items()}
    for name in sorted(composites.python_callers()):
        body = composites.python_body(name, line)
        for op in (*body.always, *body.sometimes) if body else ():
            if op not in BOOKKEEPING:
                names.setdefault(op.partition(".")[0], []).append(name)
    return names


def usual_words(page: page_records.OperatorPage) -> list[str]:
    """Return the usual words for an operator on the command line (lookup/words.yaml): ``self attention``."""
    bare = page.name.partition("::")[2]
    names = {page.name, bare, *(name.removeprefix("torch.") for name in page.python)}
    return [word for word, name in WORDS.items() if name in names]


def _entry(
    page: SitePage, others: Mapping[str, Sequence[str]], differing: html.Pool
) -> list[object] | None:
    address = f"{page.address}.html"
    if isinstance(page, page_records.OperatorPage):
        names = (*page.python, *usual_words(page), *others.get(page.name, ()))
        newest = page.tables[page.overloads[0].table][-1].dtypes
        place = differing(json.dumps(newest, sort_keys=True))
        return [0, page.name, address, page.state, [*dict.fromkeys(names)], place]
    if isinstance(page, page_records.ModelPage):
        headline = next(iter(page.headlines.values()), "could not tell")
        return [1, show_hidden(page.name), address, headline, []]
    if isinstance(page, page_records.ReleasePage):
        return [2, f"torch {page.torch}", address, f"macOS {page.minimum_macos}+", [page.release]]
    if isinstance(page, page_records.Rule):
        return [4 if page.sort == "remedy" else 3, page.id, address, page.title, []]
    return None
