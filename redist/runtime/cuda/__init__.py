"""The runtime for arrays of GPUs: the twins of its modules. CuPy is imported when such an array appears."""
