"""Whole functions of global arrays: captured, checked, and repeated without the front end."""
