"""Short programs with global arrays; each checks its result: ``mpirun -n 8 python -m examples.fft3d``."""
