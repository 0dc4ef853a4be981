"""Programs larger than memory: what a limit costs if tiles are loaded and stored beside the work."""
