"""Element-wise functions: operands brought to one layout, NumPy or CuPy on the tiles."""
