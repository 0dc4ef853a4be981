"""Tables, JSON and charts for every benchmark."""
