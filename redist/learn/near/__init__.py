"""What is near what: slabs of space, nearest rows, lists within a radius, parts, spanning trees, chains."""
