"""Search over named collectives alone: what ``strategy="collectives"`` asks for."""
