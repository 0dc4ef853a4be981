"""Without scikit-learn the package says what it lacks, and nothing else of redist asks for it."""

from __future__ import annotations

import subprocess
import sys

HIDDEN = """
import sys
sys.modules["sklearn"] = None  # as if it were not installed
import redist
try:
    import redist.learn.cluster
except ImportError as problem:
    print(problem)
"""


def test_the_error_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "cannot import redist.learn: scikit-learn is not installed; pip install 'scikit-learn>=1.6'\n"
    )
