"""The base of every operation on global arrays: tiles, their types, who holds what, and moves."""
