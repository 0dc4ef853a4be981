"""redist beside PyTorch: DTensors, and weights handed from one mesh to another."""
