"""Programs of ranks that take arrays of Dask and Ray."""
