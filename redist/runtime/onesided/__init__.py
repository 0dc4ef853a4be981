"""One-sided access: windows onto other ranks' tiles, and records of writes on their way."""
