"""Gradients of functions of global arrays, by reverse mode: the backward pass consists of ordinary calls."""
