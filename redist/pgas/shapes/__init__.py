"""Functions that change shapes and orders: reshape, permute, join, repeat, roll."""
