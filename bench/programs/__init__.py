"""Programs beside the functions that they are made of."""
