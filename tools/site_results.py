"""The site's pages of results: a hook of mkdocs that takes them from their folder, results/.

If a page of the documentation links to a page or picture of results/, the site contains it and all
that it links to in turn. On the site, a link to anything else of the repository, such as a program
or a folder of runs, becomes its text and path. A page whose folder has a report shows the report.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
INDEX = "results/README.md"
REPORT = "report/report.html"
SHOWN = {".csv", ".gif", ".html", ".json", ".md", ".png", ".svg"}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the linked files, and an entry in the navigation for each page of results."""
    waiting = [INDEX] + [target for page in _pages(files) for target in _targets(page)]
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in found or not path.startswith("results/") or not _is_shown(path):
            continue
        found.add(path)
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            waiting += _targets(path)
    folders = [line for line in _targets(INDEX) if line in found and line.endswith("README.md")]
    for group in config.nav or []:
        for pages in group.values():
            if INDEX in pages:
                pages[pages.index(INDEX)] = {"Results": [INDEX, *folders]}
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """A page's text, with links that work on the site."""
    here = _in_repository(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        picture, text, target, anchor = match.groups()
        if "://" in target or files.get_file_from_path(page.file.src_uri) is None:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        source = path.removeprefix("docs/")
        if files.get_file_from_path(source):
            base = posixpath.dirname(page.file.src_uri) or "."
            return f"{picture}[{text}]({posixpath.relpath(source, base)}{anchor or ''})"
        known = (ROOT / path).exists()
        return f"{text} (`{path}`)" if known else match[0]

    return _LINK.sub(link, markdown) + _embedded(page.file.src_uri, files)


def _embedded(source: str, files: Files) -> str:
    """Appends the report of a folder of results to its page, as it looks in a browser."""
    folder = posixpath.dirname(source)
    if not files.get_file_from_path(f"{folder}/{REPORT}") or not source.endswith("README.md"):
        return ""
    frame = f'<iframe src="{REPORT}" title="The report" loading="lazy"></iframe>'
    return f"\n\n## The report\n\n[In a window of its own]({REPORT}).\n\n{frame}\n"


def _pages(files: Files) -> list[str]:
    """The paths of the documentation's pages, from the root of the repository."""
    return [_in_repository(page.src_uri) for page in files.documentation_pages()]


def _in_repository(source: str) -> str:
    return source if source.startswith("results/") else f"docs/{source}"


def _is_shown(path: str) -> bool:
    return (ROOT / path).is_file() and Path(path).suffix in SHOWN


def _targets(path: str) -> list[str]:
    """The files that a page links to, in the order of the page."""
    if not (ROOT / path).is_file():  # made by another hook
        return []
    text = _FENCE.sub("", (ROOT / path).read_text())
    found = [match[3] for match in _LINK.finditer(text) if "://" not in match[3]]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), each)) for each in found]
