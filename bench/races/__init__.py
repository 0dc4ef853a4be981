"""redist and JAX in turn on the same random redistributions."""
