"""Pages as readers of the site need them: which search results come first, nothing about checkouts."""

from __future__ import annotations

import re
from typing import Any

LATER = ("benchmarks/", "internals/", "decisions/", "explanation/theory")
"""Pages for those who look closer: other pages come first among the results of a search."""
CHECKOUT = re.compile(r"<!-- checkout -->.*?<!-- end -->\n?", re.DOTALL)
"""What is meant for readers of the source, where ``:::`` names are not replaced."""


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Rank the page, and leave out what only readers of a checkout need."""
    if page.file.src_uri.startswith(LATER):
        page.meta.setdefault("search", {"boost": 0.2})
    return CHECKOUT.sub("", text)
