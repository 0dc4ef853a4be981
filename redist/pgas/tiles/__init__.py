"""What every operation of global arrays stands on: tiles, their types, who holds what, and moves."""
