"""The documentation's links to results, which are in the repository and not on the site.

A hook of mkdocs: on the site such a link is its text and the path. In the repository it is a link.
"""

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(\.\./(results/[^)#]+)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page's text before it is made HTML."""
    return _LINK.sub(r"\1 (`\2`)", markdown)
