"""Times on GPUs: kernels alone, and whole redistributions between ranks."""
