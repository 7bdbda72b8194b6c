"""Writes pages as files: HTML by Jinja2, the record of each page as JSON, and the index of the search box."""

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files as package
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import inside
from opcheck.common.names import DTYPE_ALIASES
from opcheck.common.sanitize import show_hidden
from opcheck.common.vocabulary import HEADLINES
from opcheck.common.yaml_text import load_shipped
from opcheck.data import composites
from opcheck.data.registrations import OpLists, load
from opcheck.features.site import page_records
from opcheck.features.site.page_records import PAGES, Macos, ModelPage, OperatorPage, Outcome, SitePage
from opcheck.lookup.answer_words import WORDS, aliases
from opcheck.lookup.plain_call import BOOKKEEPING, COMMON_DTYPES
from opcheck.render import html, wording

#: The menu: names, addresses, and the kinds of the pages below.
_NAVIGATION: list[tuple[str, str, list[str]]] = load_shipped(__file__, "navigation.yaml")


def files(pages: Collection[SitePage], progress: Callable[[str], None] | None = None) -> dict[str, str]:
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
        **{name: (folder / name).read_text(encoding="utf-8") for name in ("style.css", "search.js", "list.js")},
        "search-index.js": search_index(pages),
        "schema.json": schema(),
        "coverage.svg": html.plot(home.counts, home.macos),
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


def _html(templates: Environment, page: SitePage, path: str, home: page_records.Home, own: Collection[str]) -> str:
    _, title, description = page.page_head
    html = templates.get_template(f"site/{type(page).__name__.removesuffix('Page').lower()}.html").render(
        page=page,
        home=home,
        home_page=isinstance(page, page_records.Home),
        title=title,
        description=description,
        top=page_records.to_top(path),
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
            here = "page" if path == address else "true" if type(page).__name__ in below else ""
            yield name, address, here


#: The kinds of pages in the search, in the order of equally good matches.
_KINDS = ("operator", "model", "release", "rule", "remedy")


def search_index(pages: Iterable[SitePage]) -> str:
    """Return the index as a script, ``opcheckIndex(...)``: a page that is opened as a file cannot fetch JSON.

    Each entry is [kind, name, address, the text next to it, other names, the place of its dtypes]: the states of
    dtypes that differ are shared by many operators.
    """
    others = _other_names(load())
    differing = html.Pool()
    entries = [entry for page in pages if (entry := _entry(page, others, differing))]
    aliases_of = {alias: name for alias, name in DTYPE_ALIASES.items() if name in COMMON_DTYPES}
    dtypes = {name: name for name in COMMON_DTYPES} | aliases_of
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


def _entry(page: SitePage, others: Mapping[str, Sequence[str]], differing: html.Pool) -> list[object] | None:
    address = f"{page.address}.html"
    if isinstance(page, page_records.OperatorPage):
        names = (*page.python, *usual_words(page), *others.get(page.name, ()))
        newest = page.tables[page.overloads[0].table][-1].dtypes
        place = differing(json.dumps(newest, sort_keys=True))
        return [0, page.name, address, page.state, [*dict.fromkeys(names)], place]
    if isinstance(page, page_records.ModelPage):
        headline = next(iter(page.headlines.values()), HEADLINES[1])
        return [1, show_hidden(page.name), address, headline, []]
    if isinstance(page, page_records.ReleasePage):
        return [2, f"torch {page.torch}", address, f"macOS {page.minimum_macos}+", [page.release]]
    if isinstance(page, page_records.Rule):
        return [4 if page.sort == "remedy" else 3, page.id, address, page.title, []]
    return None


#: This file marks an earlier site; its list shows whether the folder has other files.
MARKER = "opcheck-site.json"
SCHEMA = "opcheck-site-files/1"


class _SiteFiles(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    files: tuple[str, ...]


def check(output: Path) -> None:
    """Check that a site may be written there: the folder is missing, empty, or an earlier site.

    Raises:
        UsageError: it may not.
    """
    try:
        # A link to nothing is there, too.
        there = next(path for path in (output, *output.absolute().parents) if os.path.lexists(path))
        if not there.is_dir():
            raise _refusal("not a folder", there)
        paths = output.rglob("*") if there == output else ()
        inner = (path for path in paths if path.is_symlink() or not path.is_dir())
        present = {path.relative_to(output).as_posix() for path in inner}
        if not present:
            return
        if MARKER not in present:
            raise _refusal("the folder is not empty, and no earlier site", output)
        ours = documents.from_json(documents.read(output / MARKER), _SiteFiles)
    except (OSError, documents.DocumentError) as error:
        raise _refusal(f"the folder cannot be read: {error}", output) from error
    others = sorted(present - {*ours.files, MARKER})
    if ours.schema != SCHEMA or others:
        named = ", ".join(others[:3]) or MARKER
        foreign = f"the folder has files that are not part of an earlier site: {named}"
        raise _refusal(foreign, output)


#: Bytes on disk for the page of an operator and its share of the others: nine tenths of the shipped lists' site.
_PAGE = 32 << 10


def check_room(output: Path, pages: int) -> None:
    """Check that the disk has room for so many pages, which take half a minute to make.

    Raises:
        UsageError: it has not.
    """
    above = next(path for path in (output, *output.absolute().parents) if path.is_dir())
    with explain_errors(OSError, "cannot write the site", context=output, hint=_ROOM):
        if shutil.disk_usage(above).free < pages * _PAGE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


#: What to do where a site cannot be written.
_ROOM = "name a folder on a disk with room for it, where you may write; what was there is as it was"


def write(output: Path, files: Mapping[str, str]) -> None:
    """Put the files there, in place of an earlier site, which stays as it is if that fails.

    Args:
        output: the folder; a link is followed.
        files: texts by their paths within it.

    Raises:
        UsageError: it is not to be written to (``check``), or cannot be: no room, no permission.
    """
    check(output)
    place = output.resolve()
    with explain_errors(OSError, "cannot write the site", context=output, hint=_ROOM):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{place.name}.", dir=place.parent, ignore_cleanup_errors=True
        ) as folder:
            # The end of the temporary folder must not delete a site that could not be put back.
            new, earlier = Path(folder, "site.new"), Path(f"{folder}.old")
            _fill(new, files)
            try:
                if place.exists():
                    place.rename(earlier)
                new.rename(place)
            except BaseException:
                if earlier.exists():
                    earlier.rename(place)
                raise
        shutil.rmtree(earlier, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    marker = msgspec.json.encode(_SiteFiles(schema=SCHEMA, files=tuple(sorted(files)))).decode()
    for name, text in {**files, MARKER: f"{marker}\n"}.items():
        path = inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _refusal(message: str, output: Path) -> UsageError:
    hint = "name a new or an empty folder, or that of an earlier site"
    return UsageError(message, context=str(output), hint=hint)


_OP = re.compile(r"(\b(?:aten|torchvision|torchaudio)::\w+(?:\.\w+)?)")
_ISSUE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")


def filters(path: str, pages: Collection[str]) -> dict[str, Callable[..., Any]]:
    """Return the functions that the templates of a page apply to its values.

    Args:
        path: of the page that is written.
        pages: the paths of all pages: nothing else is linked to.
    """
    top = page_records.to_top(path)

    def link(address: str, name: str) -> Markup:
        code = Markup("<code>{}</code>").format(name)
        if address not in pages:
            return code
        return Markup('<a href="{}{}.html">{}</a>').format(top, address, code)

    def op(name: str) -> Markup:
        return link(page_records.operator(name), name)

    def link_operators(text: str) -> Markup:
        """Turn the names of operators in a text into links."""
        parts = enumerate(_OP.split(text))
        return Markup("").join(op(part) if number % 2 else escape(part) for number, part in parts)

    return {
        **_OF_ANY_PAGE,
        "op": op,
        "model": lambda name: link(page_records.model(name), name),
        "linked": link_operators,
        "release": lambda line: Markup('<a href="{}{}.html">{}</a>').format(top, page_records.release(line), line),
        "statement": lambda named: top + page_records.statement(*named),
    }


def _address(text: str) -> Markup:
    """Return a link to an address, an issue by its number; any other text as it is."""
    if not text.startswith("https://"):
        return Markup("<code>{}</code>").format(text)
    issue = _ISSUE.fullmatch(text)
    return Markup('<a href="{}">{}</a>').format(text, f"{issue[1]}#{issue[2]}" if issue else text)


#: What a model's headline counts as, for its sign and colour.
_STATES = ("unsupported", "unknown", "fallback_env", "fallback_always", "native")
_HEADLINES: dict[str, str] = dict(zip(HEADLINES, _STATES, strict=True))


def headline_state(headline: str) -> str:
    """Return the state whose sign a headline takes."""
    return _HEADLINES.get(headline, "unknown")


def lines(span: Sequence[str]) -> str:
    """Return ``2.3`` or ``2.3 to 2.8``."""
    return " to ".join(dict.fromkeys((span[0], span[-1])))


def macos(span: Macos) -> str:
    """Return ``any``, ``before 14.0``, ``14.0 to 15.0`` or ``14.0+``."""
    if span.since is None:
        return "any" if span.until is None else f"before {span.until}"
    return f"{span.since}+" if span.until is None else f"{span.since}, before {span.until}"


def dtypes(states: Mapping[str, str]) -> str:
    """Return ``refused: float64; CPU always: bool``."""
    return wording.group_words({name: wording.SHORT[state] for name, state in states.items()})


def dtype_changes(changes: Mapping[str, tuple[str, str]]) -> str:
    """Return ``refused, now native: bfloat16``."""
    words = wording.SHORT
    return wording.group_words({n: f"{words[was]}, now {words[now]}" for n, (was, now) in changes.items()})


def targets(systems_of: Mapping[str, Sequence[str]], every: Sequence[str]) -> str:
    """Return ``torch 2.8 to 2.13 on macOS 14.0, 15.0``: neighbours in ``every`` with the same macOS are merged."""
    parts = []
    for systems, group in groupby(every, key=lambda line: tuple(systems_of.get(line, ()))):
        if systems:
            parts.append(f"torch {lines(list(group))} on macOS {', '.join(systems)}")
    return "; ".join(parts)


def strip(page: OperatorPage, every: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the main overload on the newest macOS: release lines, state, and how many releases that is."""
    states = dict.fromkeys(every, "absent")
    for row in page.tables[page.overloads[0].table]:
        if row.macos.until is None:
            first, last = (every.index(line) for line in row.torch)
            states |= dict.fromkeys(every[first : last + 1], row.state)
    for state, group in groupby(every, key=states.__getitem__):
        span = list(group)
        yield lines(span), state, len(span)


def kinds(outcomes: Iterable[Outcome]) -> list[tuple[str, bool]]:
    """Return the modes of a model, each without the fallback variable first."""
    return sorted({(outcome.mode, outcome.fallback) for outcome in outcomes})


def grid(
    page: ModelPage,
    mode: str,
    fallback: bool,  # noqa: FBT001  (of the table's row)
) -> Iterator[tuple[str, list[Outcome | None]]]:
    """Yield a row per release: the outcome on each macOS of the sweep; None: not swept."""
    outcomes = {
        (line, system): outcome
        for outcome in page.outcomes
        if (outcome.mode, outcome.fallback) == (mode, fallback)
        for line, systems in outcome.targets.items()
        for system in systems
    }
    for line in reversed(page.torch):
        yield line, [outcomes.get((line, system)) for system in page.macos]


def sentence(reason: str) -> str:
    """Capitalize a text, unless it begins with an operator's name, and end it with a full stop."""
    first = reason.partition(" ")[0]
    return f"{reason if '::' in first else reason[:1].upper() + reason[1:]}."


_WORDS: tuple[Callable[..., Any], ...] = (
    *(dtype_changes, dtypes, grid, headline_state, kinds),
    *(lines, macos, sentence, strip, targets),
)
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
_OF_ANY_PAGE: dict[str, Callable[..., Any]] = {
    "address": _address,
    "groupby_namespace": lambda listed: [
        (namespace, list(group)) for namespace, group in groupby(listed, key=lambda each: each.name.partition("::")[0])
    ],
    "label": wording.LABELS.__getitem__,
    # It escapes. Code that scrolls sideways can be reached by keyboard.
    "markdown": lambda text: Markup(_MARKDOWN.render(text).replace("<pre>", '<pre tabindex="0">')),
    "prefixed": lambda names, prefix: [f"{prefix}{name}" for name in names],
    "since": wording.write_since,
    **{word.__name__: word for word in _WORDS},
}
