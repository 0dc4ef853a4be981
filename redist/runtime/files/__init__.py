"""Files that all ranks write and read together: runs of bytes, checksums, and names given at the end."""
