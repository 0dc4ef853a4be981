"""How much a run of the tests looks at: ``make test`` at a sample, ``make test-all`` at everything.

>>> sample(20, of=200) in (20, 200)
True
"""

from __future__ import annotations

import os

VARIABLE = "REDIST_TEST_ALL"
THOROUGH = os.environ.get(VARIABLE, "") not in ("", "0")
"""``make test-all`` sets the variable; every process of a test run sees the same."""


def sample(quick: int, *, of: int) -> int:
    """How many cases to look at: few in ``make test``, all ``of`` them in ``make test-all``."""
    assert quick <= of
    return of if THOROUGH else quick
