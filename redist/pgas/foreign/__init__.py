"""Arrays that Dask and Ray keep in blocks, as global arrays, and back."""
