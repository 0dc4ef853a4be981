"""What pytest looks at: packages for another framework only where that is installed."""

from __future__ import annotations

from importlib.util import find_spec

FRAMEWORKS = ("jax", "torch")

collect_ignore_glob = [f"redist/{name}/*" for name in FRAMEWORKS if find_spec(name) is None]
