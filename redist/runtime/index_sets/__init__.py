"""Sets of indices: positions along a dim, what a tile holds of a range or list, and what two tiles share."""
