"""Arrays of Dask and Ray as global arrays, where those are installed: make launchers."""
