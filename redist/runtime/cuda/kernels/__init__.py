"""Copies and reductions on one GPU: how they are cut into blocks, compiled and launched."""
