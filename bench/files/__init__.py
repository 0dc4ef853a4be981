"""What writing and reading a file on all ranks takes, beside NumPy in one process and by hand."""
