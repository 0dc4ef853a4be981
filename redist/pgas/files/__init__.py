"""Global arrays from files that all ranks see: each rank reads its share."""
