"""The same loops on a GPU: CUDA where it pays, else CuPy."""
