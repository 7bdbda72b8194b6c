"""What mkdocs does beside its plugins: the menu of verbs, pages of the op lists, links that lead out of docs/.

The pages are also read in the repository, so their links are relative there. On the site, a link to a file that is a
page leads to that page, a link to any other file of the repository to that file on the web.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from opcheck.features import menu

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?P<before>\]\()(?P<path>(?![a-z]+:|#|<)[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the menu by the verbs, in the groups and the order of ``opcheck --help``."""
    for section in config.nav or ():
        section.get("How-to", []).extend(menu())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that stand elsewhere."""
    for source, place in config.extra["elsewhere"].items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links that hold on the site."""
    places = {str(file.abs_src_path): file.src_uri for file in files if file.abs_src_path}
    source = Path(str(page.file.abs_src_path))

    def replaced(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match["path"]))
        anchor = match["anchor"] or ""
        if str(target) in places:
            link = os.path.relpath(places[str(target)], Path(page.file.src_uri).parent)
        elif target.exists() and target.is_relative_to(ROOT):
            link = f"{config.repo_url}/blob/main/{target.relative_to(ROOT).as_posix()}"
        else:
            return match[0]
        return f"{match['before']}{link}{anchor})"

    return _LINK.sub(replaced, markdown)
