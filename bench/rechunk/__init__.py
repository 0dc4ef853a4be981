"""Rechunking a store, beside other libraries."""
