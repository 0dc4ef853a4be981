"""Tasks on tiles that are too large for memory, cut into tasks on blocks of them."""
