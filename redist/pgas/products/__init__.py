"""Matrix products and Einstein sums: the cheapest layout of each operand, then NumPy on the tiles."""
