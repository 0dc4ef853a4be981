"""Joins of operands element by element, aggregated in blocks: the joined array never exists."""
