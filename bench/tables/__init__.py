"""Stored figures, and the Markdown tables that are made from them."""
