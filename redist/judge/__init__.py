"""Judge one plan: replay it, prove its memory bound, run it on data; say all of it in words."""
