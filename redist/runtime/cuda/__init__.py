"""Run transfers on arrays of GPUs. CuPy is imported when such an array appears."""
