"""Golden plans: 200 requests with the plans they must lead to, byte for byte."""
