"""Programs of ranks that save and load."""
