"""How much a run of the tests looks at.

======================================  =====================================================
``make test``                           a sample: the first number of every pair
``make test-all``                       everything, twice the sample, a sixth of what has none
``REDIST_TEST_ALL=full make test-all``  every random case: the second number (hours)
======================================  =====================================================

>>> sample(20, of=200) in (20, 40, 200)
True
"""

from __future__ import annotations

import os

VARIABLE = "REDIST_TEST_ALL"
FULL = os.environ.get(VARIABLE, "") == "full"
THOROUGH = os.environ.get(VARIABLE, "") not in ("", "0")
"""``make test-all`` sets the variable; every process of a test run sees the same."""
TIMES, PART = 2, 6


def sample(quick: int, *, of: int) -> int:
    """How many random cases to look at; see above. ``quick`` is 0 where ``make test`` has none."""
    assert quick <= of
    if FULL:
        return of
    if THOROUGH:
        return min(of, TIMES * quick) if quick else -(-of // PART)
    return quick
