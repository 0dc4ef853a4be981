"""Which of the other libraries are here."""

from __future__ import annotations

import importlib.metadata
import importlib.util


def why_absent(*modules: str) -> str | None:
    """Why modules cannot be used; None where they can.

    >>> why_absent("json"), why_absent("json", "no_such_module")
    (None, 'not installed')
    """
    missing = any(importlib.util.find_spec(module) is None for module in modules)
    return "not installed" if missing else None


def version(package: str) -> str:
    """Version of a package, without what stands behind a plus sign.

    >>> version("no-such-package")
    '?'
    """
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "?"
