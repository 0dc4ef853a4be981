"""Tables, JSON, charts and a progress bar for every benchmark."""
