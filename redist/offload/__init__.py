"""Programs larger than memory: what is loaded, stored and freed, so that every order keeps the limit."""
