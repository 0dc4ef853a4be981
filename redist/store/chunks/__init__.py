"""Chunk stores: arrays in chunks of one shape, written again in chunks of another."""
