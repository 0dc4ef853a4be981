"""``pgas.random``: random arrays from a seed.

The values depend only on the seed, the order of the calls and the global index, not on ranks or layouts.
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
