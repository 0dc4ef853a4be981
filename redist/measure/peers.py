"""Find the modules whose contenders take part with ``--peers``: those that a project names.

In the ``pyproject.toml`` of redist's repository stands ``[tool.redist] contenders = [...]``; the
installed package knows of no peers. No MPI here, so that the command line can ask too.
"""

from __future__ import annotations

import sys
from pathlib import Path

from redist.errors import RequestError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def peer_modules(folder: Path | None = None) -> tuple[str, ...]:
    """Read the modules from the ``pyproject.toml`` of this folder or the nearest above it."""
    here = (Path.cwd() if folder is None else folder).resolve()
    for place in (here, *here.parents):
        try:
            text = (place / "pyproject.toml").read_text(encoding="utf-8")
        except OSError:
            continue
        named = _read_modules(text, place)
        if named:
            return named
    raise RequestError(
        "--peers: no pyproject.toml here names contenders under [tool.redist]; "
        "run in redist's repository"
    )


def _read_modules(text: str, place: Path) -> tuple[str, ...]:
    try:
        named = tomllib.loads(text).get("tool", {}).get("redist", {}).get("contenders", [])
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"--peers: cannot read {place / 'pyproject.toml'}: {error}") from None
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise RequestError(
            f"--peers: cannot use contenders = {named!r} in {place / 'pyproject.toml'}; "
            'need a list of modules such as ["mine.contenders"]'
        )
    return tuple(named)
