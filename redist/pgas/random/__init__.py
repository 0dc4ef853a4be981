"""``pgas.random``: random arrays by a seed.

The values depend on the seed and the global index only, not on ranks or layouts.
"""

from __future__ import annotations

from typing import NoReturn

from redist.errors import MissingNameError
from redist.pgas.random.generators import Generator, generator

__all__ = ["Generator", "generator"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    hint = f"; write pgas.random.generator(seed).{name}" if hasattr(Generator, name) else ""
    raise MissingNameError(f"pgas.random has no {name!r}{hint}")
