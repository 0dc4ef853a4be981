"""``pgas.random``: random arrays by a seed.

The values depend on the seed and the global index only, not on ranks or layouts.
"""

from __future__ import annotations

from typing import NoReturn

from redist.errors import MissingNameError
from redist.pgas.random.generators import Generator, generator
from redist.pgas.suggestions import explain_random

__all__ = ["Generator", "generator"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> NoReturn:
    raise MissingNameError(explain_random(name))
