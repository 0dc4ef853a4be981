"""Docstrings of redist as Markdown, for the Python API page: sessions fenced, roles and `::` resolved."""

from __future__ import annotations

import re
from typing import Any

import griffe


def markdown_of(text: str) -> str:
    """Turn a docstring into Markdown.

    >>> markdown_of("See :func:`redist.plan.add` and ``x``, as::\\n\\n    y = 1")
    'See `add` and `x`, as:\\n\\n```python\\ny = 1\\n```'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    blocks = re.split(r"\n{2,}(?! {4}\S)", text)
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    if block.startswith(">>> "):
        return f"```pycon\n{block}\n```"
    prose, colons, code = block.partition("::\n\n    ")
    if colons:
        lines = re.sub(r"^ {4}", "", f"    {code}", flags=re.MULTILINE)
        return f"{prose}:\n\n```python\n{lines}\n```"
    return block


class MarkdownDocstrings(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown_of(obj.docstring.value)
