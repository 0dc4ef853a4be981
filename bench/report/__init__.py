"""Jobs, tables and JSON for every benchmark."""
