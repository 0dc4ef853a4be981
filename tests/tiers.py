"""How much a run of the tests looks at.

======================================  =====================================================
``make test``                           a sample: the first number of every pair
``make test-all``                       everything: the sample; where it has none, up to 9 cases
``REDIST_TEST_ALL=full make test-all``  every random case: the second number (hours)
======================================  =====================================================

>>> sample(20, of=200) in (20, 200)
True
"""

from __future__ import annotations

import os

VARIABLE = "REDIST_TEST_ALL"
FULL = os.environ.get(VARIABLE, "") == "full"
THOROUGH = os.environ.get(VARIABLE, "") not in ("", "0")
"""``make test-all`` sets the variable; every process of a test run sees the same."""
PART, MOST = 6, 9
"""Where ``make test`` looks at nothing, ``make test-all`` looks at a sixth: at most 9 cases."""


def sample(quick: int, *, of: int) -> int:
    """How many random cases to look at; see above. ``quick`` is 0 where ``make test`` has none."""
    assert quick <= of
    if FULL:
        return of
    if THOROUGH:
        return quick or min(MOST, -(-of // PART))
    return quick
