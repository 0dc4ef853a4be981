"""Judge a plan: replay it, prove its memory bound. Shares only the definition of tiles with the search."""
