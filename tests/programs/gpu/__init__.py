"""Transfers and global arrays on GPUs, real or pretended."""
