"""Show proofs/THEORY.md in the site, its formulas as MathML that browsers draw themselves."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

PROOFS = "https://github.com/redist-dev/redist/blob/main/proofs/"


def on_files(files: Any, config: Any) -> Any:
    """Add the page."""
    folder = Path(config.config_file_path).parent / "proofs"
    text = (folder / "THEORY.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((?=\w+\.(?:md|py)\))", f"]({PROOFS}", text)
    files.append(File.generated(config, "explanation/theory.md", content=text))
    return files


def on_page_content(text: str, **_: Any) -> str:
    """Turn formulas that arithmatex has marked into MathML."""
    text = re.sub(
        r'<span class="arithmatex">\\\((.+?)\\\)</span>', _formula("inline"), text, flags=re.DOTALL
    )
    return re.sub(
        r'<div class="arithmatex">\\\[(.+?)\\\]</div>', _formula("block"), text, flags=re.DOTALL
    )


def _formula(display: str) -> Any:
    return lambda found: convert(html.unescape(found[1]), display=display)
