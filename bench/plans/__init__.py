"""How good plans are, and how long planning takes."""
