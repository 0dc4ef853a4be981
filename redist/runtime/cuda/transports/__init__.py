"""How bytes get from GPU to GPU: CUDA IPC, one shared GPU, NCCL, MPI through pinned memory."""
