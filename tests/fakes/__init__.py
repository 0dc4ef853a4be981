"""Stand-ins for CuPy, NCCL, contenders and ranks."""
