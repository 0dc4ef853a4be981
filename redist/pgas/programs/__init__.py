"""Whole functions of global arrays: captured once, checked, and repeated without the front end."""
