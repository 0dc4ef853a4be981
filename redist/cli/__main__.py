"""``python -m redist.cli`` is the command ``redist``."""

from __future__ import annotations

import sys

from redist.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
