"""``a[key]`` and ``a[key] = values``: by ints and slices, by integer arrays, by masks."""
