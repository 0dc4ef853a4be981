"""How theorems are stated, settled by Z3 and printed."""
