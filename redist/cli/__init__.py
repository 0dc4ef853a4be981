"""The command ``redist``: what the library does, on the command line; one file a command."""
